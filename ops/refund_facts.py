"""What is known about one refund of an order: the request, the row, and what Stripe shows."""

from collections.abc import Sequence
from dataclasses import dataclass

from onecharge.orders.refunds import StoredRefund
from onecharge.payments.refunds.protocol import FoundRefund, Refund


@dataclass(frozen=True, kw_only=True)
class RefundFacts:
    """One refund, by its id; at least one of them has it."""

    refund_id: str
    requested: StoredRefund | None = None
    """The order service's item."""
    row: Refund | None = None
    """The payment service's."""
    found: Sequence[FoundRefund] | None = None
    """Stripe's refunds of this id; None if Stripe did not show them."""
