"""Where a payment's outcome moves an order, and from where: pure, and the only place that says so."""

from collections.abc import Mapping

from onecharge.events import EventType, PaymentEventType
from onecharge.states import OrderStatus

MOVES: Mapping[PaymentEventType, tuple[OrderStatus, frozenset[OrderStatus]]] = {
    EventType.PAYMENT_SUCCEEDED: (
        OrderStatus.PAID,
        frozenset({OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION, OrderStatus.NEEDS_REVIEW}),
    ),
    EventType.PAYMENT_DECLINED: (
        OrderStatus.PAYMENT_DECLINED,
        frozenset({OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION, OrderStatus.NEEDS_REVIEW}),
    ),
    EventType.PAYMENT_REQUIRES_ACTION: (
        OrderStatus.REQUIRES_ACTION,
        frozenset({OrderStatus.PENDING}),
    ),
    EventType.PAYMENT_NEEDS_REVIEW: (
        OrderStatus.NEEDS_REVIEW,
        frozenset({OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION}),
    ),
    EventType.PAYMENT_CANCELED: (
        OrderStatus.CANCELED,
        frozenset({OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION}),
    ),
}
"""For each outcome: the status that it moves the order to, and the ones that it may move it from.

An order that stands anywhere else has been moved by a later event: a late or repeated one moves nothing.
"""
