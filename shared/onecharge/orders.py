"""An item of the Orders table as the event that it stands for: pure, and the same event every time."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from onecharge.events import OrderPlaced, OrderPlacedEvent


def attempt_placed_at(order: Mapping[str, Any]) -> datetime:
    """When the item's attempt began: the order itself for the first, a later moment for every other."""
    return datetime.fromisoformat(order.get("attempt_placed_at") or order["placed_at"])


def order_placed(order: Mapping[str, Any]) -> OrderPlacedEvent:
    """The event of the item's attempt. Raises KeyError, TypeError or ValueError if the item can be none."""
    placed = OrderPlaced(
        order_id=order["order_id"],
        attempt=order["attempt"],
        customer_id=order["customer_id"],
        amount_minor=order["amount_minor"],
        currency=order["currency"],
        payment_method=order["payment_method"],
        placed_at=attempt_placed_at(order),
    )
    return OrderPlacedEvent.of(placed, correlation_id=order["correlation_id"])
