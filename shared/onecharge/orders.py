"""An order as it is stored, and the event that it stands for: the same item and the same event every time.

Whoever places an order, its id derives from what it is for, so that it is placed once.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from onecharge.dynamodb import to_item
from onecharge.events import OrderPlaced, OrderPlacedEvent
from onecharge.states import OrderStatus

RETENTION_SECONDS = 430 * 24 * 3600
"""How long an order is kept, and with it its idempotency key: a month longer than the row of its charge (400 days). An
order that the table no longer has could else be placed anew and meet the settled row of the former one."""


class Payable(Protocol):
    """What is to be paid; the amount is in the currency's minor unit."""

    @property
    def customer_id(self) -> str: ...

    @property
    def amount_minor(self) -> int: ...

    @property
    def currency(self) -> str: ...

    @property
    def payment_method(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """The same for two that mean the same."""


def order_id_for(*what: str) -> str:
    """The id of the order that is placed for this, the same at every try, and telling nothing of it.

    A customer's order is for (customer id, idempotency key). Whatever else places orders uses another number of parts,
    so that nobody can choose a key that takes the id of another's order.
    """
    digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()
    return f"ord_{digest[:32]}"


def new_order_item(
    order_id: str, payable: Payable, *, correlation_id: str, now: datetime, **details: Any
) -> Mapping[str, Any]:
    """The item of the Orders table from which the one OrderPlaced event is published; the details are kept with it."""
    return to_item(
        {
            "order_id": order_id,
            "status": OrderStatus.PENDING,
            "attempt": 1,
            "outcomes": {},
            "customer_id": payable.customer_id,
            "amount_minor": payable.amount_minor,
            "currency": payable.currency,
            "payment_method": payable.payment_method,
            "fingerprint": payable.fingerprint,
            "placed_at": now.isoformat(),
            "correlation_id": correlation_id,
            "expires_at": int(now.timestamp()) + RETENTION_SECONDS,
            **details,
        }
    )


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
