"""The state machine of an order. Every write that moves an order takes its allowed origins from here.

                                        ┌────────────── pay_again ◄──────────────┐
                                        ▼                                        │
                      a new order ─► PENDING ─┬─► PAID                           │
                                              ├─► PAYMENT_DECLINED ──────────────┘ (or PAID, late)
                                              ├─► REQUIRES_ACTION ─► PAID, or CANCELED if it is not finished in time
                                              └─► CANCELING ─► CANCELED, or PAID if the charge wins the race
                                                  (also from REQUIRES_ACTION and PAYMENT_DECLINED)

PAID and CANCELED are terminal, here as at Stripe. Delivery is at-least-once and unordered, so the other outcomes count
only in the order of the revisions of the payment's row: an order ignores one that is not newer than what it has seen.
An outcome of a later attempt than the order's moves it, too: the order is a restored one, and has forgotten attempts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecharge.contract.events import EventType, PaymentEventType
from onecharge.contract.states import OrderStatus

if TYPE_CHECKING:
    from onecharge.orders.schema import StoredOrder

WAITING = (OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION, OrderStatus.CANCELING)
"""The payment service has yet to decide: republish finds the order in the index `waiting`; it does not expire."""

OPEN = frozenset({*WAITING, OrderStatus.PAYMENT_DECLINED})
"""The statuses that are not terminal: the order may still become PAID or CANCELED."""


@dataclass(frozen=True)
class Transition:
    """A move of an order to `status`. An order that has none of the origins ignores it."""

    status: OrderStatus
    origins: frozenset[OrderStatus]

    @property
    def is_terminal(self) -> bool:
        """Whether the outcome is final at Stripe: it counts whichever attempt and revision of the row it names."""
        return self.status not in OPEN


CONDITION_OF_ATTEMPT = "(attempt < :attempt OR (attempt = :attempt AND #status <> :status))"
"""An outcome of the current attempt, or of a later one. What the order has already changes nothing."""

_UNDECIDED = OPEN - {OrderStatus.CANCELING}

MOVES: Mapping[PaymentEventType, Transition] = {
    # Stripe has moved the money, whatever was said before and whichever attempt did it.
    EventType.PAYMENT_SUCCEEDED: Transition(OrderStatus.PAID, OPEN),
    # While CANCELING, a decline is not the end: the cancellation is.
    EventType.PAYMENT_DECLINED: Transition(OrderStatus.PAYMENT_DECLINED, _UNDECIDED),
    EventType.PAYMENT_REQUIRES_ACTION: Transition(OrderStatus.REQUIRES_ACTION, _UNDECIDED),
    # No attempt of the order can be paid any more, whichever was the present one when Stripe canceled it.
    EventType.PAYMENT_CANCELED: Transition(OrderStatus.CANCELED, OPEN),
}
"""The move that each outcome of a payment makes (update_order)."""


# ---------------------------------------------------------------- the customer's own moves, and what operators foresee

PAY_AGAIN = Transition(OrderStatus.PENDING, frozenset({OrderStatus.PAYMENT_DECLINED}))

CANCEL = Transition(OrderStatus.CANCELING, _UNDECIDED)


def applies(move: Transition, order: "StoredOrder", attempt: int) -> bool:
    """Whether the outcome of this attempt moves the order, unless it is stale; as CONDITION_OF_ATTEMPT says it."""
    if order.status not in move.origins:
        return False
    if move.is_terminal:
        return True
    return order.attempt < attempt or (order.attempt == attempt and order.status is not move.status)
