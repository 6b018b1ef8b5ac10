"""A refund that staff requests: the item of the OrderRefunds table, how its outcomes merge, and its event.

refund_order (orders_api) stores the refund in one transaction with the reservation of its amount on the order;
update_order writes the outcome, and ends the reservation. The item is the outbox, as an order is.

    PENDING  <  FAILED, refused by Stripe  <  SUCCEEDED  <  FAILED, returned by a bank

Outcomes may arrive in any order, and several times: only one of a higher rank changes the refund.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from onecharge.contract.events import Attempt, CorrelationId, EventType, OrderId
from onecharge.contract.money import AmountMinor, Currency
from onecharge.contract.refund_events import (
    RefundId,
    RefundOutcomeType,
    RefundRequested,
    RefundRequestedEvent,
    RefundState,
)
from onecharge.orders.schema import Timestamp
from onecharge.runtime.dynamodb import from_item


def rank(status: RefundState, stripe_refund_id: str | None) -> int:
    """The rank, as above. What failed at Stripe has a refund there; what Stripe refused has none."""
    failed = 3 if stripe_refund_id else 1
    return {RefundState.PENDING: 0, RefundState.FAILED: failed, RefundState.SUCCEEDED: 2}[status]


STATE_OF: Mapping[RefundOutcomeType, RefundState] = {
    EventType.REFUND_SUCCEEDED: RefundState.SUCCEEDED,
    EventType.REFUND_FAILED: RefundState.FAILED,
}
"""The state that each outcome tells."""


class StoredRefund(BaseModel):
    """An item of the OrderRefunds table.

    It may have more attributes, which are never read back: `waiting_shard` or `expires_at`.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    # Written by refund_order, and never changed.
    order_id: OrderId
    refund_id: RefundId
    attempt: Attempt
    """The attempt that paid the order."""
    amount_minor: AmountMinor
    currency: Currency
    fingerprint: str
    """Of the request (onecharge.orders.ids): a retry that names another amount is refused."""
    requested_at: Timestamp
    correlation_id: CorrelationId
    requested_by: str | None = None
    """The subject of the staff's access token."""
    reason: str | None = None

    # Written by refund_order, then by update_order.
    status: RefundState
    revision: int = 0
    """How often update_order has written it."""
    told_at: Timestamp | None = None
    """When the payment service looked at Stripe for the outcome that is stored."""
    stripe_refund_id: str | None = None
    failure_code: str | None = None
    """Why Stripe refused it, or a bank returned it."""
    pending_reason: str | None = None
    """Why Stripe has not sent the money yet; only with SUCCEEDED."""

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> Self:
        """Read an item of the table or its stream. Raises ValueError if it breaks the schema."""
        return cls.model_validate(from_item(item))

    def requested_event(self) -> RefundRequestedEvent:
        """The event of the refund, the same each time. Raises ValueError if it can be none."""
        requested = RefundRequested(
            order_id=self.order_id,
            refund_id=self.refund_id,
            attempt=self.attempt,
            amount_minor=self.amount_minor,
            currency=self.currency,
            requested_at=datetime.fromisoformat(self.requested_at),
        )
        return RefundRequestedEvent.of(requested, correlation_id=self.correlation_id)
