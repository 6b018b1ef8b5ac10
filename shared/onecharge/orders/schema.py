"""The item of the Orders table: its attributes, who writes them, and the event that it is published as.

The stored item is the outbox (transactional outbox pattern): the table's stream carries each write to publish_events,
so that no second write can be lost between "stored" and "published".

    new_order_item ─► item ─► StoredOrder.from_item ─► .event() ─► OrderPlacedEvent

The same item makes the same event each time, whether publish_events or republish publishes it.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict

from onecharge.contract.events import (
    Attempt,
    CancelRequestedEvent,
    CorrelationId,
    CustomerId,
    OrderId,
    OrderPlaced,
    OrderPlacedEvent,
    PaymentMethodId,
)
from onecharge.contract.money import AmountMinor, Currency
from onecharge.contract.states import OrderStatus
from onecharge.runtime.dynamodb import from_item, shard_of, to_item


def _iso_8601(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Timestamp = Annotated[str, AfterValidator(_iso_8601)]
"""A time as it is stored: ISO 8601 in UTC, as text, which DynamoDB's indexes sort by time."""


class OrderedItem(BaseModel):
    """A line of a customer's order, at the price that it had when the order was placed."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    sku: str
    quantity: int
    unit_amount: int
    """In minor units."""

    @property
    def amount_minor(self) -> int:
        return self.quantity * self.unit_amount


def new_order_item(order_id: str, now: datetime, **ordered: Any) -> Mapping[str, Any]:
    """The item of a new order, PENDING with its first attempt, with what was ordered, by whom and for how much."""
    return to_item(
        {
            "order_id": order_id,
            "status": OrderStatus.PENDING,
            "waiting_shard": shard_of(order_id),
            "attempt": 1,
            # Empty, since an update can set an element only of a map that exists.
            "outcomes": {},
            "attempt_keys": {},
            "placed_at": now.isoformat(),
            "waiting_since": now.isoformat(),
            **ordered,
        }
    )


class AttemptOutcome(BaseModel):
    """The result of one attempt, in the attribute `outcomes`."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    status: OrderStatus
    decline_code: str | None = None


class StoredOrder(BaseModel):
    """An item of the Orders table, without the attributes that are never read back: `waiting_shard`, `expires_at`."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    # Written when the order is placed, and never changed.
    order_id: OrderId
    customer_id: CustomerId
    amount_minor: AmountMinor
    currency: Currency
    fingerprint: str
    """It distinguishes a retry from another request with the same idempotency key (onecharge.orders.ids)."""
    placed_at: Timestamp
    correlation_id: CorrelationId
    items: tuple[OrderedItem, ...] = ()

    # Written when the order is placed, and by each new attempt (pay_again).
    attempt: Attempt
    """The number of the current attempt."""
    payment_method: PaymentMethodId
    attempt_keys: Mapping[str, str] = {}
    """The digest of every idempotency key that made an attempt, and the fingerprint of the key's request. No key is
    ever forgotten, so a late retry is replayed and never charged."""

    # Written when the order is placed, and by each move (onecharge.orders.transitions).
    status: OrderStatus
    waiting_since: AwareDatetime
    """When the payment service was last asked, or its outcome made the order wait; never removed, since the index
    `waiting` sorts by it."""

    touches: int = 0
    """How often an operator has had it published again: with FIFO, each is another message."""

    # Written by cancel_order.
    cancel_requested_at: Timestamp | None = None

    # Written by update_order.
    payment_revision: int = 0
    """The revision of the payment's row whose outcome was applied last; 0 before the first."""
    outcomes: Mapping[int, AttemptOutcome] = {}
    """The result of each attempt that has one, by its number."""
    paid_attempt: int | None = None
    """The attempt that paid the order: the present one, or an earlier one that succeeded late."""
    paid_at: Timestamp | None = None
    """When the payment service stored that the order is paid."""
    cancel_reason: str | None = None
    """PaymentOutcome.reason of a CANCELED order."""
    stripe_refunded_minor: int = 0
    """Stripe's total of all refunds, also of those made in the Dashboard, as far as it was published."""
    dispute_status: str | None = None

    # Written by refund_order, and by update_order with the outcome.
    refunds_revision: int = 0
    """How often a refund of it was written: the lock of the order's refunds."""

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> Self:
        """Read an item of the table or its stream. Raises ValueError if it breaks the schema."""
        return cls.model_validate(from_item(item))

    def event(self) -> OrderPlacedEvent | CancelRequestedEvent | None:
        """The event that is published when it is stored; None if that asks for nothing. Raises ValueError."""
        if self.status is OrderStatus.CANCELING:
            return self._request(CancelRequestedEvent)
        return self.placed_event() if self.status is OrderStatus.PENDING else None

    def placed_event(self) -> OrderPlacedEvent:
        """The event of its current attempt, the same while it waits. Raises ValueError if it cannot be charged."""
        return self._request(OrderPlacedEvent)

    def _request[E: (OrderPlacedEvent, CancelRequestedEvent)](self, event: type[E]) -> E:
        asked_at = self.waiting_since + timedelta(milliseconds=self.touches)
        return event.of(self.current_attempt, correlation_id=self.correlation_id, waiting_since=asked_at)

    @property
    def current_attempt(self) -> OrderPlaced:
        """The data of its events. Raises ValueError if it cannot be charged."""
        return OrderPlaced(
            order_id=self.order_id,
            attempt=self.attempt,
            customer_id=self.customer_id,
            amount_minor=self.amount_minor,
            currency=self.currency,
            payment_method=self.payment_method,
            # The order's time, for every attempt and republication: the order's age decides whether the payment service
            # may create its PaymentIntent.
            placed_at=datetime.fromisoformat(self.placed_at),
        )

    # ------------------------------------------------------------ its money, and refunds

    @property
    def money(self) -> tuple[int, str]:
        return self.amount_minor, self.currency


REFUNDABLE_SECONDS = 425 * 24 * 3600
"""How long after its payment an order can be refunded: 75 days less than the payment service keeps the row. Stripe
may hold a refund for 45 days, and a bank may return it 30 days later (Stripe documentation, "Refunds")."""
