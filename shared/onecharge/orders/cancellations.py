"""The event that a cancellation is published as, while the order is CANCELING."""

from onecharge.contract.cancellations import CancelRequestedEvent
from onecharge.orders.schema import StoredOrder


def cancel_requested_event(order: StoredOrder) -> CancelRequestedEvent:
    """The event of the order's cancellation, the same each time. Raises ValueError if it can be none."""
    return CancelRequestedEvent.of(order.present_attempt, correlation_id=order.correlation_id)
