"""The event that an order is published as, by its status: publish_events and republish publish the same one."""

from collections.abc import Callable, Mapping

from onecharge.contract.events import Event
from onecharge.contract.states import OrderStatus
from onecharge.orders.cancellations import cancel_requested_event
from onecharge.orders.schema import StoredOrder

ORDER_EVENTS: Mapping[OrderStatus, Callable[[StoredOrder], Event]] = {
    OrderStatus.PENDING: StoredOrder.placed_event,
    OrderStatus.CANCELING: cancel_requested_event,
}
"""With any other status an order is not published when it is stored."""
