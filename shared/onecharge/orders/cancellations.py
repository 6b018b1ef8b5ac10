"""A cancellation of an order: the moves that cancel_order makes, and the event while the order is CANCELING."""

from collections.abc import Mapping

from onecharge.contract.cancellations import CancelRequestedEvent
from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder
from onecharge.orders.transitions import WAITING, Transition

_CANCELABLE = frozenset({*WAITING, OrderStatus.PAYMENT_DECLINED})

CANCELLATIONS: Mapping[OrderStatus, Transition] = {
    OrderStatus.CANCELING: Transition(OrderStatus.CANCELING, _CANCELABLE),
    OrderStatus.CANCELED: Transition(OrderStatus.CANCELED, _CANCELABLE | {OrderStatus.CANCELED}),
}
"""By the payment service's answer; both are idempotent."""


def cancel_requested_event(order: StoredOrder) -> CancelRequestedEvent:
    """The event of the order's cancellation, the same each time. Raises ValueError if it cannot be an event."""
    return CancelRequestedEvent.of(order.present_attempt, correlation_id=order.correlation_id)
