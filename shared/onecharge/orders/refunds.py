"""A refund that a customer requests: the item of the OrderRefunds table, its states, and its event.

    refund_order ─► PENDING; then each outcome of the refund moves it (update_order):

    PENDING ─► SUCCEEDED | FAILED | NEEDS_REVIEW
    NEEDS_REVIEW ─► SUCCEEDED | FAILED
    SUCCEEDED ─► FAILED

refund_order (orders_api) stores the refund in one transaction with the reservation of its amount on the order, so that
no more is requested than was paid. update_order writes the outcome; with FAILED it releases the reservation. The item
is the outbox: its stream publishes RefundRequested, and republish publishes it again while it is PENDING.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from onecharge.contract.events import Attempt, CorrelationId, EventType, OrderId
from onecharge.contract.money import AmountMinor, Currency
from onecharge.contract.refunds import (
    RefundId,
    RefundOutcomeType,
    RefundRequested,
    RefundRequestedEvent,
    RefundState,
)
from onecharge.orders.schema import Timestamp
from onecharge.runtime.dynamodb import from_item


def waits(status: RefundState) -> bool:
    """Whether the payment service or a person has yet to decide: the index `waiting` has the refund, and it is kept."""
    return status in (RefundState.PENDING, RefundState.NEEDS_REVIEW)


@dataclass(frozen=True)
class RefundTransition:
    """A move of a refund to `status`. A refund that has none of the origins ignores it."""

    status: RefundState
    origins: frozenset[RefundState]


REFUND_OUTCOMES: Mapping[RefundOutcomeType, RefundTransition] = {
    EventType.REFUND_SUCCEEDED: RefundTransition(
        RefundState.SUCCEEDED, frozenset({RefundState.PENDING, RefundState.NEEDS_REVIEW})
    ),
    # A bank may return a refund that had succeeded (Stripe documentation, "Refunds", failed refunds).
    EventType.REFUND_FAILED: RefundTransition(
        RefundState.FAILED, frozenset({RefundState.PENDING, RefundState.NEEDS_REVIEW, RefundState.SUCCEEDED})
    ),
    EventType.REFUND_NEEDS_REVIEW: RefundTransition(RefundState.NEEDS_REVIEW, frozenset({RefundState.PENDING})),
}
"""The move that each outcome of a refund makes (update_order)."""


class StoredRefund(BaseModel):
    """An item of the OrderRefunds table.

    It may have more attributes, which are never read back: `failure_code`, `outcome_revision`, `waiting_shard` or
    `expires_at`.
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
