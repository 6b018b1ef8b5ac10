"""Refunds between the two services: their states and their events.

event             type                         published by publish_events from     consumed by
RefundRequested   onecharge.refund.requested   the OrderRefunds table's stream      refund_charge
RefundOutcome     onecharge.refund.*           the Refunds table's stream           update_order

RefundState is the refund's in both services' tables: OrderRefunds (transitions: onecharge.orders.refunds) and Refunds.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from onecharge.contract.events import (
    ORDER_SERVICE,
    PAYMENT_SERVICE,
    CloudEvent,
    EventType,
    OrderFact,
    OrderServiceEvent,
)
from onecharge.contract.money import AmountMinor, Currency, require_chargeable

REFUND_ID_PATTERN = r"^rfd_[0-9a-f]{32}$"
RefundId = Annotated[str, Field(pattern=REFUND_ID_PATTERN)]


class RefundState(StrEnum):
    """The state of a refund at Stripe.

    PENDING ─► SUCCEEDED | FAILED | NEEDS_REVIEW        SUCCEEDED ─► FAILED, when the bank returns it
    """

    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    """Stripe has accepted it: the money is on its way back."""
    FAILED = "FAILED"
    """No money has moved, or the bank returned it: the amount can be refunded again."""
    NEEDS_REVIEW = "NEEDS_REVIEW"


RefundOutcomeType = Literal[EventType.REFUND_SUCCEEDED, EventType.REFUND_FAILED, EventType.REFUND_NEEDS_REVIEW]
REFUND_EVENT_TYPES: Mapping[RefundState, RefundOutcomeType] = {
    RefundState.SUCCEEDED: EventType.REFUND_SUCCEEDED,
    RefundState.FAILED: EventType.REFUND_FAILED,
    RefundState.NEEDS_REVIEW: EventType.REFUND_NEEDS_REVIEW,
}
"""The event of each state that is an outcome."""


class RefundRequested(OrderFact):
    """A part of a paid order is to be refunded, and is reserved for it: one refund for each refund id.

    `attempt` is the one that paid the order.
    """

    refund_id: RefundId
    amount_minor: AmountMinor
    currency: Currency
    requested_at: AwareDatetime

    @model_validator(mode="after")
    def _can_be_refunded(self) -> Self:
        require_chargeable(self.amount_minor, self.currency)
        return self


class RefundOutcome(OrderFact):
    """The result of one refund; the event's type names the outcome."""

    refund_id: RefundId
    amount_minor: AmountMinor
    currency: Currency
    stripe_refund_id: str | None = Field(default=None, max_length=255)
    failure_code: str | None = Field(default=None, max_length=255)
    pending_reason: str | None = Field(default=None, max_length=255)
    """Why Stripe has not sent the money yet, such as `insufficient_funds`; only with `succeeded`."""
    revision: int = Field(default=0, ge=0)
    """The revision of the refund's row: of two events of a refund, the one with the higher revision is newer."""
    occurred_at: AwareDatetime


class RefundRequestedEvent(OrderServiceEvent[RefundRequested]):
    """`onecharge.refund.requested`."""

    type: Literal[EventType.REFUND_REQUESTED] = EventType.REFUND_REQUESTED

    @classmethod
    def of(cls, refund: RefundRequested, *, correlation_id: str) -> Self:
        """The one event of this refund: its id is the same each time."""
        return cls(
            id=f"{refund.refund_id}:requested",
            source=ORDER_SERVICE,
            subject=refund.order_id,
            time=refund.requested_at,
            correlationid=correlation_id,
            data=refund,
        )


class RefundOutcomeEvent(CloudEvent[RefundOutcome]):
    """`onecharge.refund.succeeded`, `.failed` or `.needs_review`."""

    type: RefundOutcomeType

    @classmethod
    def of(cls, event_type: RefundOutcomeType, outcome: RefundOutcome, *, correlation_id: str) -> Self:
        """The one event of this revision of the refund's row: its id is the same each time."""
        return cls(
            id=f"{outcome.refund_id}:{event_type.rpartition('.')[2]}:{outcome.revision}",
            source=PAYMENT_SERVICE,
            type=event_type,
            subject=outcome.order_id,
            time=outcome.occurred_at,
            correlationid=correlation_id,
            data=outcome,
        )
