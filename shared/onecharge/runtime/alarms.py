"""The causes of the metric `Alarm`, which are its dimension in CloudWatch: why a person has to act.

An alarm of monitoring.yaml watches each cause; docs/runbook.md says what it means and how it is fixed. Causes that ask
for the same action share an alarm, and are one where nothing needs to tell them apart.
"""

from enum import StrEnum


class Cause(StrEnum):
    """What a person has to act on. What is said of an alarm is also in its log line, with the order."""

    STRIPE_ACCOUNT = "StripeAccount"
    """Key, account or webhook endpoint."""
    STRIPE_INCONCLUSIVE = "StripeInconclusive"
    MONEY_DIFFERS = "MoneyDiffers"
    PAID_AFTER_DECLINE = "PaidAfterDecline"
    ROW_LOST = "RowLost"
    HELD = "Held"
    OVERDUE = "Overdue"
    BALANCE_TOO_LOW = "BalanceTooLow"
    REFUND_FAILED = "RefundFailed"
    CHARGE_DISPUTED = "ChargeDisputed"
    REQUEST_REFUSED = "RequestRefused"
    UNEXPECTED_ERROR = "UnexpectedError"
    """Our code, its configuration, or an item that somebody changed."""


class RowMissing(Exception):
    """What a message is about is not in its table, as after a loss: retried with an alarm that stops no deployment."""
