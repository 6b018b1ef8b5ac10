"""The state machine of an order. Every write that moves an order takes its allowed origins from here.

                                        ┌────────────── pay_again ◄──────────────┐
                                        ▼                                        │
                      a new order ─► PENDING ─┬─► PAID                           │
                                              ├─► PAYMENT_DECLINED ──────────────┘ (or PAID, late)
                                              ├─► REQUIRES_ACTION ─► PAID, or PAYMENT_DECLINED in the end
                                              ├─► CANCELING ─► CANCELED, or PAID if the charge wins
                                              │   (also from REQUIRES_ACTION and PAYMENT_DECLINED)
                                              └─► NEEDS_REVIEW ─► a person decides: PENDING, CANCELING, CANCELED
                                                  (also from the statuses above it)

Each outcome of the payment moves the order (update_order):

    PENDING ─► PAID | PAYMENT_DECLINED | REQUIRES_ACTION | NEEDS_REVIEW | CANCELED
    REQUIRES_ACTION ─► PAID | PAYMENT_DECLINED | REQUIRES_ACTION | NEEDS_REVIEW | CANCELED
    NEEDS_REVIEW ─► PAID | PAYMENT_DECLINED | REQUIRES_ACTION | CANCELED
    PAYMENT_DECLINED ─► PAID | PAYMENT_DECLINED | REQUIRES_ACTION | NEEDS_REVIEW | CANCELED
    CANCELING ─► PAID | NEEDS_REVIEW | CANCELED

PAID and CANCELED are terminal, here as at Stripe. Delivery is at-least-once and unordered, so the other outcomes count
only in the order of the revisions of the payment's row: an order ignores one that is not newer than what it has seen.
An outcome of a later attempt than the order's moves it, too: the order is a restored one, and has forgotten attempts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

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

    @property
    def is_terminal(self) -> bool:
        """Whether the outcome is final at Stripe: no revision of the payment's row takes it back."""
        return self.status not in OPEN

    def applies(self, order: "HasAttempt", attempt: int) -> bool:
        """Whether the outcome of this attempt moves the order, unless it is stale; as CONDITION_OF_ATTEMPT says it."""
        if order.status not in self.origins:
            return False
        if self.of_any_attempt:
            return True
        return order.attempt < attempt or (order.attempt == attempt and order.status is not self.status)


class HasAttempt(Protocol):
    """What `applies` asks of an order."""

    @property
    def status(self) -> OrderStatus: ...
    @property
    def attempt(self) -> int: ...


CONDITION_OF_ATTEMPT = "(attempt < :attempt OR (attempt = :attempt AND #status <> :status))"
"""An outcome of the current attempt, or of a later one. What the order has already changes nothing."""


PAY_AGAIN = Transition(OrderStatus.PENDING, frozenset({OrderStatus.PAYMENT_DECLINED}))

CANCEL = Transition(
    OrderStatus.CANCELING,
    frozenset({OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION, OrderStatus.PAYMENT_DECLINED}),
)

CANCEL_IN_REVIEW = Transition(OrderStatus.CANCELING, CANCEL.origins | {OrderStatus.NEEDS_REVIEW})
"""A person cancels as the customer does, and also what needs review (ops/review.py)."""

RETRY = Transition(
    OrderStatus.PENDING, frozenset({OrderStatus.NEEDS_REVIEW, OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION})
)
"""A person has put the payment back to PENDING (ops/review.py): the order's stream publishes the attempt again."""

REVIEW_OTHER_MONEY = Transition(OrderStatus.NEEDS_REVIEW, OPEN - {OrderStatus.NEEDS_REVIEW}, of_any_attempt=True)
"""The payment is of other money than the order: what was paid for an order that was lost does not pay this one."""

CANCEL_UNPAID = Transition(OrderStatus.CANCELED, frozenset({OrderStatus.NEEDS_REVIEW}))
"""A person ends an order whose payment is of other money (ops/review.py)."""

_UNDECIDED = frozenset({OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION, OrderStatus.NEEDS_REVIEW})

OUTCOMES: Mapping[PaymentEventType, Transition] = {
    # Stripe has moved the money, whatever was said before and whichever attempt did it.
    EventType.PAYMENT_SUCCEEDED: Transition(OrderStatus.PAID, OPEN, of_any_attempt=True),
    # While CANCELING, a decline is not the end: the cancellation is.
    EventType.PAYMENT_DECLINED: Transition(OrderStatus.PAYMENT_DECLINED, _UNDECIDED | {OrderStatus.PAYMENT_DECLINED}),
    EventType.PAYMENT_REQUIRES_ACTION: Transition(
        OrderStatus.REQUIRES_ACTION, _UNDECIDED | {OrderStatus.PAYMENT_DECLINED}
    ),
    # No attempt follows until a person has decided.
    EventType.PAYMENT_NEEDS_REVIEW: Transition(
        OrderStatus.NEEDS_REVIEW, frozenset({*WAITING, OrderStatus.PAYMENT_DECLINED}), of_any_attempt=True
    ),
    # No attempt of the order can be paid any more, whichever was the present one when Stripe canceled it.
    EventType.PAYMENT_CANCELED: Transition(OrderStatus.CANCELED, OPEN, of_any_attempt=True),
}
"""The move that each outcome of a payment makes (update_order)."""
