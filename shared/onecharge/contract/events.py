"""The events on the wire: CloudEvents 1.0 in JSON, one envelope and one data model for each type.

An event's id is derived from what happened, never drawn at random: publishing the same fact twice makes the same
id twice, so that everybody downstream can see that it is the same fact.

    OrderPlaced      onecharge.order.placed       orders_api ► stream ► publish_events ► charge_order
    CancelRequested  onecharge.order.cancel_requested                                     the same way
    PaymentOutcome   onecharge.payment.*          charge_order ► stream ► publish_events ► update_order
    RefundRequested  onecharge.refund.requested   orders_api ► stream ► publish_events ► refund_charge
    RefundOutcome    onecharge.refund.*           refund_charge ► stream ► publish_events ► update_order
"""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from onecharge.contract.money import AmountMinor, Currency, require_chargeable

ORDER_ID_PATTERN = r"^ord_[0-9a-f]{32}$"

OrderId = Annotated[str, Field(pattern=ORDER_ID_PATTERN)]
RefundId = Annotated[str, Field(pattern=r"^rfd_[0-9a-f]{32}$")]
CustomerId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:@-]{1,64}$")]
PaymentMethodId = Annotated[str, Field(pattern=r"^pm_[A-Za-z0-9_]{1,60}$")]
"""The id of a Stripe PaymentMethod, `pm_…`: a token for a card, never its number."""
ATTEMPTS_MAX = 100
Attempt = Annotated[int, Field(strict=True, ge=1, le=ATTEMPTS_MAX)]
"""Which attempt to pay the order this is: 1, and one more for each new card after a decline."""
CorrelationId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:=/+-]{1,128}$")]
"""The id of the HTTP request that began it all, carried through every event and log line."""

EVENT_TYPE_ATTRIBUTE = "event_type"
"""Name of the SNS message attribute that repeats the event's type, for subscriptions to filter on."""


class EventType(StrEnum):
    """The CloudEvents `type` of everything that onecharge publishes."""

    ORDER_PLACED = "onecharge.order.placed"
    ORDER_CANCEL_REQUESTED = "onecharge.order.cancel_requested"
    PAYMENT_SUCCEEDED = "onecharge.payment.succeeded"
    PAYMENT_DECLINED = "onecharge.payment.declined"
    PAYMENT_REQUIRES_ACTION = "onecharge.payment.requires_action"
    PAYMENT_NEEDS_REVIEW = "onecharge.payment.needs_review"
    PAYMENT_CANCELED = "onecharge.payment.canceled"
    REFUND_REQUESTED = "onecharge.refund.requested"
    REFUND_SUCCEEDED = "onecharge.refund.succeeded"
    REFUND_FAILED = "onecharge.refund.failed"
    REFUND_NEEDS_REVIEW = "onecharge.refund.needs_review"


class Contract(BaseModel):
    """What crosses a boundary: strict about types, immutable once read.

    A consumer ignores fields that it does not know, so that a newer producer can be deployed before it. A producer
    cannot send one: the type checker refuses it.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class OrderPlaced(Contract):
    """A customer's order is stored and is to be charged: all that the payment service has to know of it."""

    order_id: OrderId
    attempt: Attempt
    customer_id: CustomerId
    amount_minor: AmountMinor
    currency: Currency
    payment_method: PaymentMethodId
    placed_at: AwareDatetime

    @model_validator(mode="after")
    def _can_be_charged(self) -> Self:
        require_chargeable(self.amount_minor, self.currency)
        return self


class PaymentOutcome(Contract):
    """The result of one attempt to pay an order; the event's type says which of the outcomes it is."""

    order_id: OrderId
    attempt: Attempt
    amount_minor: AmountMinor
    currency: Currency
    payment_intent_id: str | None = Field(default=None, max_length=255)
    decline_code: str | None = Field(default=None, max_length=255)
    """Stripe's decline code, or its error code where there is none; only with `declined`."""
    advice_code: str | None = Field(default=None, max_length=255)
    """Stripe's advice after a decline: `confirm_card_data`, `do_not_try_again` or `try_again_later`."""
    amount_refunded_minor: int | None = Field(default=None, ge=0)
    """What Stripe shows as refunded in all, by us or by hand; only with `succeeded`. It falls when a refund fails."""
    dispute_status: str | None = Field(default=None, max_length=64)
    """Stripe's status of the newest dispute (needs_response, under_review, won, lost, …); only with `succeeded`."""
    revision: int = Field(default=0, ge=0)
    """Of the payment's row: of two events of an order, the one with the higher revision says what holds."""
    occurred_at: AwareDatetime


class CancelRequested(OrderPlaced):
    """A customer's order is to be canceled unless it is paid: with all that a payment of it would have needed."""


class RefundRequested(Contract):
    """So much of a paid order is to be given back, and is reserved for it: once for each refund id."""

    order_id: OrderId
    refund_id: RefundId
    attempt: Attempt
    """The attempt that paid the order."""
    amount_minor: AmountMinor
    currency: Currency
    requested_at: AwareDatetime

    @model_validator(mode="after")
    def _can_be_refunded(self) -> Self:
        require_chargeable(self.amount_minor, self.currency)
        return self


class RefundOutcome(Contract):
    """What one refund came to; the event's type says which of the outcomes it is."""

    order_id: OrderId
    refund_id: RefundId
    attempt: Attempt
    amount_minor: AmountMinor
    currency: Currency
    stripe_refund_id: str | None = Field(default=None, max_length=255)
    failure_code: str | None = Field(default=None, max_length=255)
    occurred_at: AwareDatetime


class CloudEvent[Data: Contract](BaseModel):
    """The envelope, CloudEvents 1.0 in its JSON format, with `correlationid` as an extension attribute.

    Other extensions that a broker may add on the way are ignored, as the specification asks of a consumer.
    Source: CloudEvents specification 1.0.2, "Context Attributes" and "JSON Event Format".
    """

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    specversion: Literal["1.0"] = "1.0"
    id: str = Field(min_length=1, max_length=255)
    source: str = Field(min_length=1, max_length=255)
    type: EventType
    subject: str = Field(min_length=1, max_length=255)
    time: AwareDatetime
    datacontenttype: Literal["application/json"] = "application/json"
    correlationid: CorrelationId
    data: Data


PaymentEventType = Literal[
    EventType.PAYMENT_SUCCEEDED,
    EventType.PAYMENT_DECLINED,
    EventType.PAYMENT_REQUIRES_ACTION,
    EventType.PAYMENT_NEEDS_REVIEW,
    EventType.PAYMENT_CANCELED,
]


RefundEventType = Literal[
    EventType.REFUND_SUCCEEDED,
    EventType.REFUND_FAILED,
    EventType.REFUND_NEEDS_REVIEW,
]


class OrderPlacedEvent(CloudEvent[OrderPlaced]):
    """`onecharge.order.placed`."""

    type: Literal[EventType.ORDER_PLACED] = EventType.ORDER_PLACED

    @classmethod
    def of(cls, order: OrderPlaced, *, correlation_id: str) -> Self:
        """The one event of this order and attempt, with the same id however often it is made."""
        return cls(
            id=f"{order.order_id}:{order.attempt}:placed",
            source="/onecharge/orders",
            subject=order.order_id,
            time=order.placed_at,
            correlationid=correlation_id,
            data=order,
        )

    @model_validator(mode="after")
    def _subject_is_the_order(self) -> Self:
        if self.subject != self.data.order_id:
            raise ValueError("subject is not the order that the data is about")
        return self


class CancelRequestedEvent(CloudEvent[CancelRequested]):
    """`onecharge.order.cancel_requested`."""

    type: Literal[EventType.ORDER_CANCEL_REQUESTED] = EventType.ORDER_CANCEL_REQUESTED

    @classmethod
    def of(cls, order: OrderPlaced, *, correlation_id: str) -> Self:
        """The one event of this cancellation, with the same id however often it is made."""
        return cls(
            id=f"{order.order_id}:{order.attempt}:cancel_requested",
            source="/onecharge/orders",
            subject=order.order_id,
            time=order.placed_at,
            correlationid=correlation_id,
            data=CancelRequested(**order.model_dump()),
        )

    @model_validator(mode="after")
    def _subject_is_the_order(self) -> Self:
        if self.subject != self.data.order_id:
            raise ValueError("subject is not the order that the data is about")
        return self


class PaymentOutcomeEvent(CloudEvent[PaymentOutcome]):
    """`onecharge.payment.succeeded`, `.declined`, `.requires_action`, `.needs_review` or `.canceled`."""

    type: PaymentEventType

    @classmethod
    def of(cls, event_type: PaymentEventType, outcome: PaymentOutcome, *, correlation_id: str) -> Self:
        """The event of this revision of the payment's row, with the same id however often the row is published.

        A later revision of the same outcome (a dispute, a re-emission) is another event, which a FIFO topic
        must not take for a duplicate.
        """
        kind = event_type.rpartition(".")[2]
        return cls(
            id=f"{outcome.order_id}:{outcome.attempt}:{kind}:{outcome.revision}",
            source="/onecharge/payments",
            type=event_type,
            subject=outcome.order_id,
            time=outcome.occurred_at,
            correlationid=correlation_id,
            data=outcome,
        )


class RefundRequestedEvent(CloudEvent[RefundRequested]):
    """`onecharge.refund.requested`."""

    type: Literal[EventType.REFUND_REQUESTED] = EventType.REFUND_REQUESTED

    @classmethod
    def of(cls, refund: RefundRequested, *, correlation_id: str) -> Self:
        """The one event of this refund, with the same id however often it is made."""
        return cls(
            id=f"{refund.refund_id}:requested",
            source="/onecharge/orders",
            subject=refund.order_id,
            time=refund.requested_at,
            correlationid=correlation_id,
            data=refund,
        )

    @model_validator(mode="after")
    def _subject_is_the_order(self) -> Self:
        if self.subject != self.data.order_id:
            raise ValueError("subject is not the order that the data is about")
        return self


class RefundOutcomeEvent(CloudEvent[RefundOutcome]):
    """`onecharge.refund.succeeded`, `.failed` or `.needs_review`."""

    type: RefundEventType

    @classmethod
    def of(cls, event_type: RefundEventType, outcome: RefundOutcome, *, revision: int, correlation_id: str) -> Self:
        """The event of this revision of the refund's row, with the same id however often the row is published."""
        return cls(
            id=f"{outcome.refund_id}:{event_type.rpartition('.')[2]}:{revision}",
            source="/onecharge/payments",
            type=event_type,
            subject=outcome.order_id,
            time=outcome.occurred_at,
            correlationid=correlation_id,
            data=outcome,
        )
