"""Money as metrics, for the dashboard: an indication, never the books. `python -m ops audit` compares to the cent.

It is counted once a row has become SUCCEEDED: one conditional write, which no duplicate and no replay repeats. A worker
that dies between that write and its log's last line leaves it out, so the sum may be too low, and never too high.
"""

from onecharge.runtime.metrics import Metric


def money_charged(amount_minor: int, currency: str) -> Metric:
    """An order's amount, in the currency's minor unit."""
    return Metric("MoneyCharged", {"currency": currency}, value=amount_minor)


def money_refunded(amount_minor: int, currency: str) -> Metric:
    """A refund's amount, in the currency's minor unit."""
    return Metric("MoneyRefunded", {"currency": currency}, value=amount_minor)
