"""The events between the two services: CloudEvents 1.0 in JSON, one envelope, and one data model for each type.

    event             type                               published by publish_events from   consumed by
    OrderPlaced       onecharge.order.placed             the Orders table's stream          charge_order
    CancelRequested   onecharge.order.cancel_requested   the Orders table's stream          charge_order
    PaymentOutcome    onecharge.payment.*                the Payments table's stream        update_order

An event's id derives from what happened and is never random. Delivery is at-least-once: a consumer recognizes
what is old by the attempt and the revision.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from onecharge.contract.money import AmountMinor, Currency, is_returned, require_chargeable
from onecharge.contract.states import PaymentState

ORDER_ID_PATTERN = r"^ord_[0-9a-f]{32}$"

OrderId = Annotated[str, Field(pattern=ORDER_ID_PATTERN)]
CUSTOMER_ID_PATTERN = r"^[!-~]{1,255}$"
CustomerId = Annotated[str, Field(pattern=CUSTOMER_ID_PATTERN)]
"""Visible ASCII without spaces, as long as the subject of a token may be (OpenID Connect Core 1.0, "ID Token", `sub`):
`auth0|65f1…`, a UUID, an e-mail address."""
PaymentMethodId = Annotated[str, Field(pattern=r"^pm_[A-Za-z0-9_]{1,60}$")]
"""The id of a Stripe PaymentMethod, `pm_…`: a token for a card, never its number."""
ATTEMPT_NUMBER_MAX = 100
Attempt = Annotated[int, Field(strict=True, ge=1, le=ATTEMPT_NUMBER_MAX)]
"""The number of the attempt to pay the order: 1, and one more for each new payment method after a decline."""
CorrelationId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:=/+-]{1,128}$")]
"""The id of the HTTP request that placed the order, or asked for the refund; its events and log lines carry it."""

EVENT_TYPE_ATTRIBUTE = "event_type"
"""The SNS message attribute that repeats the event's type: subscriptions filter on it."""

ORDER_SERVICE = "/onecharge/orders"
"""The CloudEvents `source` of the order service's events."""
PAYMENT_SERVICE = "/onecharge/payments"
"""The CloudEvents `source` of the payment service's events."""


class EventType(StrEnum):
    """The CloudEvents `type` of each event between the two services."""

    ORDER_PLACED = "onecharge.order.placed"
    CANCEL_REQUESTED = "onecharge.order.cancel_requested"
    PAYMENT_SUCCEEDED = "onecharge.payment.succeeded"
    PAYMENT_DECLINED = "onecharge.payment.declined"
    PAYMENT_REQUIRES_ACTION = "onecharge.payment.requires_action"
    PAYMENT_CANCELED = "onecharge.payment.canceled"
    REFUND_REQUESTED = "onecharge.refund.requested"
    REFUND_SUCCEEDED = "onecharge.refund.succeeded"
    REFUND_FAILED = "onecharge.refund.failed"


PaymentEventType = Literal[
    EventType.PAYMENT_SUCCEEDED,
    EventType.PAYMENT_DECLINED,
    EventType.PAYMENT_REQUIRES_ACTION,
    EventType.PAYMENT_CANCELED,
]
PAYMENT_EVENT_TYPES: Mapping[PaymentState, PaymentEventType] = {
    PaymentState.SUCCEEDED: EventType.PAYMENT_SUCCEEDED,
    PaymentState.DECLINED: EventType.PAYMENT_DECLINED,
    PaymentState.REQUIRES_ACTION: EventType.PAYMENT_REQUIRES_ACTION,
    PaymentState.CANCELED: EventType.PAYMENT_CANCELED,
}
"""The event of each state that is an outcome."""


class Contract(BaseModel):
    """A model that crosses the boundary between the services; immutable.

    A consumer ignores unknown fields, so that a newer producer can be deployed before it. pydantic compiles a model at
    its first use: a function needs few.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True, defer_build=True)


class OrderFact(Contract):
    """The data of an event: something that happened to one order."""

    order_id: OrderId
    attempt: Attempt


class OrderPlaced(OrderFact):
    """An attempt to pay a stored order: all that the payment service needs to charge it."""

    customer_id: CustomerId
    amount_minor: AmountMinor
    currency: Currency
    payment_method: PaymentMethodId
    placed_at: AwareDatetime
    """When the order was placed, the same for each of its attempts."""

    @model_validator(mode="after")
    def _can_be_charged(self) -> Self:
        require_chargeable(self.amount_minor, self.currency)
        return self


class PaymentOutcome(OrderFact):
    """The result of one attempt to pay an order; the event's type names the outcome."""

    amount_minor: AmountMinor
    currency: Currency
    payment_intent_id: str | None = Field(default=None, max_length=255)
    payment_method: PaymentMethodId | None = None
    """The attempt's; None if the row was recovered, and does not know it."""
    reason: str | None = Field(default=None, max_length=255)
    """With `declined`, Stripe's decline code, or its error code if there is none. With `canceled`, `expired` (3-D
    Secure was not finished in time), `not_chargeable` (Stripe refuses the amount or the currency), or None."""
    amount_refunded_minor: int | None = Field(default=None, ge=0)
    """Stripe's total of all refunds, also of those made in the Dashboard; only with `succeeded`. It may fall
    when a refund fails."""
    dispute_status: str | None = Field(default=None, max_length=64)
    """Stripe's status of the newest dispute (needs_response, under_review, won, …); only with `succeeded`."""
    revision: int = Field(default=0, ge=0)
    """The revision of the payment's row: of two events of an order, the one with the higher revision is newer."""
    occurred_at: AwareDatetime

    @property
    def money(self) -> tuple[int, str]:
        return self.amount_minor, self.currency

    @property
    def is_returned(self) -> bool:
        return is_returned(self.amount_minor, self.amount_refunded_minor or 0, self.dispute_status)


class CloudEvent[Data: OrderFact](Contract):
    """The envelope, with `correlationid` as an extension attribute.

    Source: CloudEvents specification 1.0.2, "Context Attributes" and "JSON Event Format".
    """

    specversion: Literal["1.0"] = "1.0"
    id: str = Field(min_length=1, max_length=255)
    source: str = Field(min_length=1, max_length=255)
    type: str
    subject: str = Field(min_length=1, max_length=255)
    time: AwareDatetime
    datacontenttype: Literal["application/json"] = "application/json"
    correlationid: CorrelationId
    data: Data

    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of a log line about it."""
        return {"order_id": self.data.order_id, "attempt": self.data.attempt, "correlation_id": self.correlationid}

    @property
    def message_group(self) -> str:
        """With FIFO: what is delivered in sequence."""
        return self.subject

    @classmethod
    def about(cls, data: Data, *, id: str, at: datetime, correlation_id: str, **more: Any) -> Self:
        """An event of this id about the order that the data is about."""
        return cls(id=id, subject=data.order_id, time=at, correlationid=correlation_id, data=data, **more)


Event = CloudEvent[Any]
"""Any event of either service."""


def event_adapter(*models: type[Event]) -> TypeAdapter[Any]:
    """Reads an event of any of these models from JSON; the event's `type` says which."""
    union: Any = reduce(or_, models)
    return TypeAdapter(Annotated[union, Field(discriminator="type")])


def milliseconds(time: datetime) -> int:
    """The time since the epoch, as ids of events have it."""
    return int(time.timestamp() * 1000)


class OrderServiceEvent[Data: OrderFact](CloudEvent[Data]):
    """An event of the order service: a request to the payment service."""

    source: str = Field(default=ORDER_SERVICE, min_length=1, max_length=255)


class AttemptEvent(OrderServiceEvent[OrderPlaced]):
    """A request about an attempt to pay, with all that a payment of the order needs."""

    @classmethod
    def of(cls, order: OrderPlaced, *, correlation_id: str, waiting_since: datetime | None = None) -> Self:
        """The one event of this attempt since the order waits for it, as a new order does since it was placed.

        Once the order begins to wait again, it is another event, which FIFO does not drop as a duplicate.
        """
        kind, since = cls.model_fields["type"].default.rpartition(".")[2], waiting_since or order.placed_at
        event_id = f"{order.order_id}:{order.attempt}:{kind}:{milliseconds(since)}"
        return cls.about(order, id=event_id, at=order.placed_at, correlation_id=correlation_id)


class OrderPlacedEvent(AttemptEvent):
    """`onecharge.order.placed`."""

    type: Literal[EventType.ORDER_PLACED] = EventType.ORDER_PLACED


class CancelRequestedEvent(AttemptEvent):
    """`onecharge.order.cancel_requested`: cancel the payment of this order unless it is paid."""

    type: Literal[EventType.CANCEL_REQUESTED] = EventType.CANCEL_REQUESTED

    @property
    def message_group(self) -> str:
        """Its own: it overtakes a charge that backs off, as in an outage, and prevents it."""
        return f"{self.subject}:cancel"


class PaymentOutcomeEvent(CloudEvent[PaymentOutcome]):
    """`onecharge.payment.succeeded`, `.declined`, `.requires_action` or `.canceled`."""

    source: str = Field(default=PAYMENT_SERVICE, min_length=1, max_length=255)
    type: PaymentEventType

    @classmethod
    def of(cls, event_type: PaymentEventType, outcome: PaymentOutcome, *, correlation_id: str) -> Self:
        """The one event of this revision of the payment's row: its id is the same each time."""
        event_id = f"{outcome.order_id}:{outcome.attempt}:{event_type.rpartition('.')[2]}:{outcome.revision}"
        at = outcome.occurred_at
        return cls.about(outcome, id=event_id, at=at, correlation_id=correlation_id, type=event_type)


_NO_KNOWN_TYPE = {"union_tag_not_found": "type: missing", "union_tag_invalid": "type: unknown"}
"""pydantic's errors for a union of events, whose discriminator is the event's type."""


def reason_of(invalid: ValidationError) -> str:
    """The first rule that the input breaks, as `field: rule`; it names fields of the contract only."""
    first = invalid.errors(include_input=False, include_url=False, include_context=False)[0]
    if first["type"] in _NO_KNOWN_TYPE:
        return _NO_KNOWN_TYPE[first["type"]]
    field = ".".join(map(str, first["loc"])) or "message"
    return f"{field}: {first['type']}"
