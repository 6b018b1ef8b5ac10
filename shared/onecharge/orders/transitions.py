"""The state machine of an order. Every write that moves an order takes its allowed origins from here.

                                        ┌────────────── pay_again ◄──────────────┐
                                        ▼                                        │
                      a new order ─► PENDING ─┬─► PAID                           │
                                              ├─► PAYMENT_DECLINED ──────────────┘
                                              ├─► REQUIRES_ACTION ─► PAID, or PAYMENT_DECLINED in the end
                                              ├─► CANCELING ─► CANCELED, or PAID if the charge wins
                                              └─► NEEDS_REVIEW ─► a person decides; RETRY: PENDING

Each outcome of the payment moves the order (update_order):

    PENDING ─► PAID | PAYMENT_DECLINED | REQUIRES_ACTION | NEEDS_REVIEW | CANCELED
    REQUIRES_ACTION ─► PAID | PAYMENT_DECLINED | NEEDS_REVIEW | CANCELED
    NEEDS_REVIEW ─► PAID | PAYMENT_DECLINED | CANCELED
    PAYMENT_DECLINED ─► PAID | CANCELED
    CANCELING ─► PAID | NEEDS_REVIEW | CANCELED

PAID and CANCELED are terminal. Delivery is at-least-once and unordered: an order whose status is none of a
transition's origins ignores the outcome, which is a duplicate or stale.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from onecharge.contract.events import EventType, PaymentEventType
from onecharge.contract.states import OrderStatus

WAITING = (OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION, OrderStatus.CANCELING)
"""The statuses that the payment service ends by itself: republish publishes the order again."""

OPEN = frozenset({*WAITING, OrderStatus.NEEDS_REVIEW, OrderStatus.PAYMENT_DECLINED})
"""The statuses that are not terminal: the order may still become PAID or CANCELED."""


def waits(status: OrderStatus) -> bool:
    """Whether the payment service or a person has yet to decide: the index `waiting` has the order, and it is kept."""
    return status in WAITING or status is OrderStatus.NEEDS_REVIEW


@dataclass(frozen=True)
class Transition:
    """A move of an order to `status`. An order that has none of the origins ignores it."""

    status: OrderStatus
    origins: frozenset[OrderStatus]
    of_any_attempt: bool = False
    """It is about the whole payment, so it counts whichever attempt the outcome names."""


PAY_AGAIN = Transition(OrderStatus.PENDING, frozenset({OrderStatus.PAYMENT_DECLINED}))

CANCEL = Transition(
    OrderStatus.CANCELING,
    frozenset({OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION, OrderStatus.PAYMENT_DECLINED}),
)

RETRY = Transition(OrderStatus.PENDING, frozenset({OrderStatus.NEEDS_REVIEW, OrderStatus.PENDING}))
"""A person has put the payment back to PENDING (ops/review.py): the order's stream publishes the attempt again."""

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
    # No attempt of the order can be paid any more, whichever was the present one when Stripe canceled it.
    EventType.PAYMENT_CANCELED: Transition(OrderStatus.CANCELED, OPEN, of_any_attempt=True),
}
"""The move that each outcome of a payment makes (update_order)."""
