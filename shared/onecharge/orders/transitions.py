"""The state machine of an order. Every write that moves an order takes its allowed origins from here.

                                        ┌────────────── pay_again ◄──────────────┐
                                        ▼                                        │
    place_order, place_due_orders ─► PENDING ─┬─► PAID                           │
                                              ├─► PAYMENT_DECLINED ──────────────┘
                                              ├─► REQUIRES_ACTION ─► PAID, or PAYMENT_DECLINED in the end
                                              ├─► NEEDS_REVIEW ─► a person decides
                                              └─► CANCELING ─► CANCELED, or PAID if the charge wins

Each outcome of the payment moves the order (update_order):

    PENDING ─► PAID | PAYMENT_DECLINED | REQUIRES_ACTION | NEEDS_REVIEW | CANCELED
    REQUIRES_ACTION ─► PAID | PAYMENT_DECLINED | NEEDS_REVIEW | CANCELED
    NEEDS_REVIEW ─► PAID | PAYMENT_DECLINED | CANCELED
    PAYMENT_DECLINED ─► PAID | CANCELED
    CANCELING ─► PAID | NEEDS_REVIEW | CANCELED

PAID and CANCELED are terminal. Delivery is at-least-once and unordered: an order whose status is none of a
transition's origins ignores the outcome, which is a duplicate or stale. The moves of cancel_order are in
cancellations.py. A refund reserves a part of a PAID order and does not move it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from onecharge.contract.events import EventType, PaymentEventType
from onecharge.contract.states import OrderStatus

WAITING = (
    OrderStatus.PENDING,
    OrderStatus.REQUIRES_ACTION,
    OrderStatus.CANCELING,
)
"""The statuses that the payment service ends by itself; republish asks about them again. NEEDS_REVIEW waits for a
person."""

OPEN = frozenset({*WAITING, OrderStatus.NEEDS_REVIEW, OrderStatus.PAYMENT_DECLINED})
"""The statuses that are not terminal: the order may still become PAID or CANCELED."""


@dataclass(frozen=True)
class Transition:
    """A move of an order to `status`. An order that has none of the origins ignores it."""

    status: OrderStatus
    origins: frozenset[OrderStatus]
    of_any_attempt: bool = False
    """It is about the whole payment, so it counts whichever attempt the outcome names."""

    @property
    def ends_waiting(self) -> bool:
        """Nothing is waited for in this status, so the item may expire."""
        return self.status in (OrderStatus.PAID, OrderStatus.PAYMENT_DECLINED, OrderStatus.CANCELED)


PAY_AGAIN = Transition(OrderStatus.PENDING, frozenset({OrderStatus.PAYMENT_DECLINED}))

OUTCOMES: Mapping[PaymentEventType, Transition] = {
    # Stripe has moved the money, whatever was said before and whichever attempt did it.
    EventType.PAYMENT_SUCCEEDED: Transition(OrderStatus.PAID, OPEN, of_any_attempt=True),
    # While CANCELING, a decline is not the end: the cancellation is.
    EventType.PAYMENT_DECLINED: Transition(
        OrderStatus.PAYMENT_DECLINED,
        frozenset({OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION, OrderStatus.NEEDS_REVIEW}),
    ),
    EventType.PAYMENT_REQUIRES_ACTION: Transition(OrderStatus.REQUIRES_ACTION, frozenset({OrderStatus.PENDING})),
    EventType.PAYMENT_NEEDS_REVIEW: Transition(OrderStatus.NEEDS_REVIEW, frozenset(WAITING)),
    # No attempt of the order can be paid any more. The request that asked for it may have died before it wrote
    # CANCELING, and another attempt may have been made meanwhile.
    EventType.PAYMENT_CANCELED: Transition(OrderStatus.CANCELED, OPEN, of_any_attempt=True),
}
"""The move that each outcome of a payment makes (update_order)."""
