"""The event that asks for a cancellation. It follows the question in questions.py if that did not finish it.

CancelRequested   onecharge.order.cancel_requested   the Orders table's stream ─► publish_events ─► charge_order
"""

from typing import Literal, Self

from onecharge.contract.events import ORDER_SERVICE, OrderPlaced, OrderServiceEvent

CANCEL_REQUESTED: Literal["onecharge.order.cancel_requested"] = "onecharge.order.cancel_requested"
"""The event's CloudEvents `type`."""


class CancelRequested(OrderPlaced):
    """Cancel the payment of this order unless it is paid. It has all that a payment of the order would have needed."""


class CancelRequestedEvent(OrderServiceEvent[CancelRequested]):
    """`onecharge.order.cancel_requested`."""

    type: Literal["onecharge.order.cancel_requested"] = CANCEL_REQUESTED

    @classmethod
    def of(cls, order: OrderPlaced, *, correlation_id: str) -> Self:
        """The one event of this cancellation: its id is the same each time."""
        return cls(
            id=f"{order.order_id}:{order.attempt}:cancel_requested",
            source=ORDER_SERVICE,
            subject=order.order_id,
            time=order.placed_at,
            correlationid=correlation_id,
            data=CancelRequested(**order.model_dump()),
        )
