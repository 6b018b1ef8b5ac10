"""Which outcome moves an order or a refund where, and from where: pure, and the only place that says so."""

from collections.abc import Mapping
from dataclasses import dataclass

from onecharge.contract.events import EventType, PaymentEventType, RefundEventType
from onecharge.contract.states import OrderStatus, RefundStatus


@dataclass(frozen=True)
class Transition:
    """An outcome moves an order to this status, from one of these; an order with another status ignores it."""

    status: OrderStatus
    origins: frozenset[OrderStatus]
    is_final: bool = True
    """Nothing is waited for any more: the order may expire."""
    of_any_attempt: bool = False
    """True of the whole payment, so that it counts whichever attempt the outcome names."""


TRANSITIONS: Mapping[PaymentEventType, Transition] = {
    # Late truth wins: Stripe's money has moved, whatever was said before, and whichever attempt did it.
    EventType.PAYMENT_SUCCEEDED: Transition(
        OrderStatus.PAID,
        frozenset(
            {
                OrderStatus.PENDING,
                OrderStatus.REQUIRES_ACTION,
                OrderStatus.NEEDS_REVIEW,
                OrderStatus.PAYMENT_DECLINED,
                OrderStatus.CANCELING,
            }
        ),
        of_any_attempt=True,
    ),
    # While CANCELING, a decline is no end: the cancellation is.
    EventType.PAYMENT_DECLINED: Transition(
        OrderStatus.PAYMENT_DECLINED,
        frozenset({OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION, OrderStatus.NEEDS_REVIEW}),
    ),
    EventType.PAYMENT_REQUIRES_ACTION: Transition(
        OrderStatus.REQUIRES_ACTION, frozenset({OrderStatus.PENDING}), is_final=False
    ),
    EventType.PAYMENT_NEEDS_REVIEW: Transition(
        OrderStatus.NEEDS_REVIEW,
        frozenset({OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION, OrderStatus.CANCELING}),
        is_final=False,
    ),
    # A cancellation is of the order, and no attempt of it can be paid any more. Whoever asked for it may have died
    # before it was written, and another attempt may have been made meanwhile.
    EventType.PAYMENT_CANCELED: Transition(
        OrderStatus.CANCELED,
        frozenset(
            {
                OrderStatus.PENDING,
                OrderStatus.REQUIRES_ACTION,
                OrderStatus.NEEDS_REVIEW,
                OrderStatus.PAYMENT_DECLINED,
                OrderStatus.CANCELING,
            }
        ),
        of_any_attempt=True,
    ),
}
"""What each outcome of a payment does. No transition leads back, so a duplicate or stale outcome moves nothing."""


REFUND_TRANSITIONS: Mapping[RefundEventType, tuple[RefundStatus, frozenset[RefundStatus]]] = {
    EventType.REFUND_SUCCEEDED: (
        RefundStatus.SUCCEEDED,
        frozenset({RefundStatus.PENDING, RefundStatus.NEEDS_REVIEW}),
    ),
    # A bank may return a refund that had succeeded (Stripe documentation, "Refunds", failed refunds).
    EventType.REFUND_FAILED: (
        RefundStatus.FAILED,
        frozenset({RefundStatus.PENDING, RefundStatus.NEEDS_REVIEW, RefundStatus.SUCCEEDED}),
    ),
    EventType.REFUND_NEEDS_REVIEW: (RefundStatus.NEEDS_REVIEW, frozenset({RefundStatus.PENDING})),
}
"""What each outcome of a refund does: the status that it gives it, and those that it may have before."""

CLOSED_DISPUTES = ("lost", "warning_closed", "won")
"""Stripe's statuses of a dispute that is over (Stripe API reference, "Dispute", `status`)."""
