"""A refund that staff requests: the item of the OrderRefunds table, how its outcomes merge, and its event.

refund_order (orders_api) stores the refund, and update_order its outcome. The item is the outbox, as an order is.

    PENDING  <  FAILED, refused by Stripe  <  SUCCEEDED  <  FAILED, returned by a bank

Outcomes may arrive in any order, and several times: only one of a higher rank changes the refund.
"""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from onecharge.contract.events import Attempt, CorrelationId, EventType, OrderId
from onecharge.contract.money import AmountMinor, Currency
from onecharge.contract.refund_events import (
    RefundId,
    RefundOutcomeEvent,
    RefundRequested,
    RefundRequestedEvent,
    RefundState,
)
from onecharge.orders.schema import Timestamp
from onecharge.runtime.dynamodb import from_item


class StoredRefund(BaseModel):
    """An item of the OrderRefunds table.

    It has another attribute, which is never read back: `waiting_shard` or `expires_at`.
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
    stripe_refund_id: str | None = None
    failure_code: str | None = None
    """Why Stripe refused it, or a bank returned it."""

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> Self:
        """Read an item of the table or its stream. Raises ValueError if it breaks the schema."""
        return cls.model_validate(from_item(item))

    def requested_event(self) -> RefundRequestedEvent:
        """The event of the refund, the same each time. Raises ValueError if it can be none."""
        requested = RefundRequested.model_validate(self.model_dump())
        return RefundRequestedEvent.of(requested, correlation_id=self.correlation_id)

    def with_outcome(self, event: RefundOutcomeEvent) -> Self:
        """The refund with this outcome, whatever it has now."""
        state = RefundState.SUCCEEDED if event.type is EventType.REFUND_SUCCEEDED else RefundState.FAILED
        told = {"stripe_refund_id": event.data.stripe_refund_id, "failure_code": event.data.failure_code}
        return self.model_copy(update={"status": state, **told})


def rank(refund: StoredRefund) -> int:
    """As above. What failed at Stripe has a refund there; what Stripe refused has none."""
    failed = 3 if refund.stripe_refund_id else 1
    return {RefundState.PENDING: 0, RefundState.FAILED: failed, RefundState.SUCCEEDED: 2}[refund.status]
