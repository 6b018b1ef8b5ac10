"""Refunds between the two services: their states and their events.

event             type                         published by                         consumed by
RefundRequested   onecharge.refund.requested   publish_events, from OrderRefunds    refund_charge
RefundOutcome     onecharge.refund.*           refund_charge, stripe_webhook,       update_order
                                               reconcile
"""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field

from onecharge.contract.events import PAYMENT_SERVICE, CloudEvent, EventType, OrderFact, OrderServiceEvent, milliseconds
from onecharge.contract.money import AmountMinor, Currency

REFUND_ID_PATTERN = r"^rfd_[0-9a-f]{32}$"
RefundId = Annotated[str, Field(pattern=REFUND_ID_PATTERN)]


class RefundState(StrEnum):
    """The state of a refund in the OrderRefunds table; onecharge.orders.refund_schema says how outcomes move it."""

    PENDING = "PENDING"
    SUCCEEDED = "SUCCEEDED"
    """Stripe has accepted it: the money is on its way back."""
    FAILED = "FAILED"
    """Stripe refused it, or a bank returned it: the amount can be refunded again."""


def is_refundable_despite(dispute_status: str) -> bool:
    """Whether the customer has no money by this dispute: it was won, or is an inquiry before one.

    Source: Stripe API reference, "The Dispute object", `status`; Stripe documentation, "Disputes", inquiries.
    """
    return dispute_status == "won" or dispute_status.startswith("warning_")


class RefundRequested(OrderFact):
    """A part of a paid order is to be refunded, and is reserved for it. `attempt` is the one that paid the order."""

    refund_id: RefundId
    amount_minor: AmountMinor
    currency: Currency
    requested_at: AwareDatetime


class RefundOutcome(OrderFact):
    """The result of one refund; the event's type names the outcome."""

    refund_id: RefundId
    amount_minor: AmountMinor
    currency: Currency
    stripe_refund_id: str | None = Field(default=None, max_length=255)
    """None with `failed`: Stripe has refused it, so that there is none."""
    failure_code: str | None = Field(default=None, max_length=255)
    """Only with `failed`, and always: Stripe's reason, or `refused`, `failed`, `canceled`."""
    amount_refunded_minor: int = Field(ge=0)
    """Stripe's total of the payment's refunds, also of those made in the Dashboard."""
    dispute_status: str | None = Field(default=None, max_length=64)
    revision: int = Field(ge=0)
    """The revision of the payment's row that total and dispute are from."""
    occurred_at: AwareDatetime


class RefundRequestedEvent(OrderServiceEvent[RefundRequested]):
    """`onecharge.refund.requested`."""

    type: Literal[EventType.REFUND_REQUESTED] = EventType.REFUND_REQUESTED

    @classmethod
    def of(cls, refund: RefundRequested, *, correlation_id: str) -> Self:
        """The one event of this refund: its id is the same each time."""
        event_id = f"{refund.refund_id}:requested"
        return cls.about(refund, id=event_id, at=refund.requested_at, correlation_id=correlation_id)


class RefundOutcomeEvent(CloudEvent[RefundOutcome]):
    """`onecharge.refund.succeeded` or `.failed`."""

    source: str = Field(default=PAYMENT_SERVICE, min_length=1, max_length=255)
    type: Literal[EventType.REFUND_SUCCEEDED, EventType.REFUND_FAILED]

    @classmethod
    def of(cls, outcome: RefundOutcome, *, correlation_id: str) -> Self:
        """The event of this look at Stripe."""
        event_type = EventType.REFUND_FAILED if outcome.failure_code else EventType.REFUND_SUCCEEDED
        kind, at = event_type.rpartition(".")[2], outcome.occurred_at
        event_id = f"{outcome.refund_id}:{kind}:{outcome.revision}:{milliseconds(at)}"
        return cls.about(outcome, id=event_id, at=at, correlation_id=correlation_id, type=event_type)
