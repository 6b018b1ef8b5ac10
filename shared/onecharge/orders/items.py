"""An order and its refunds as they are stored, and the events that they stand for: the same item, the same event.

Whoever places an order, its id derives from what it is for, so that it is placed once.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from onecharge.contract.events import (
    CancelRequestedEvent,
    OrderPlaced,
    OrderPlacedEvent,
    RefundRequested,
    RefundRequestedEvent,
)
from onecharge.contract.states import OrderStatus
from onecharge.runtime.dynamodb import to_item

RETENTION_SECONDS = 430 * 24 * 3600
"""How long an order or a refund is kept after its status became final; one that still waits does not expire. The
payment service keeps its rows for 500 days after their last final state, so they outlive every order that can ask."""


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
    """The id of the order that is placed for this: always the same, and it reveals nothing of it.

    A customer's order is for (customer id, idempotency key). Whatever else places orders uses another number of parts,
    so that nobody can choose a key that takes the id of another's order.
    """
    return f"ord_{digest_of(*what)}"


def digest_of(*what: str) -> str:
    """128 bits of SHA-256, in hexadecimal."""
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]


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
            "attempt_keys": {},
            "refused_payment_methods": [],
            "customer_id": payable.customer_id,
            "amount_minor": payable.amount_minor,
            "currency": payable.currency,
            "payment_method": payable.payment_method,
            "fingerprint": payable.fingerprint,
            "placed_at": now.isoformat(),
            "correlation_id": correlation_id,
            **details,
        }
    )


def expires_at(final_since: datetime) -> int:
    """When an item expires whose status is final since then, in epoch seconds."""
    return int(final_since.timestamp()) + RETENTION_SECONDS


def waiting_since(order: Mapping[str, Any]) -> datetime:
    """When what the order waits for began: its cancellation, its present attempt, or the order itself."""
    asked_at = order.get("cancel_requested_at") if order["status"] == OrderStatus.CANCELING else None
    return datetime.fromisoformat(asked_at or order.get("attempt_placed_at") or order["placed_at"])


def order_placed(order: Mapping[str, Any]) -> OrderPlacedEvent:
    """The event of the item's present attempt. Raises KeyError, TypeError or ValueError if the item can be none."""
    return OrderPlacedEvent.of(_present_attempt(order), correlation_id=order["correlation_id"])


def cancel_requested(order: Mapping[str, Any]) -> CancelRequestedEvent:
    """The event of the item's cancellation. Raises as order_placed does."""
    return CancelRequestedEvent.of(_present_attempt(order), correlation_id=order["correlation_id"])


def _present_attempt(order: Mapping[str, Any]) -> OrderPlaced:
    return OrderPlaced(
        order_id=order["order_id"],
        attempt=order["attempt"],
        customer_id=order["customer_id"],
        amount_minor=order["amount_minor"],
        currency=order["currency"],
        payment_method=order["payment_method"],
        # The order's own, whichever attempt this is and however often it is published: the age of the order decides
        # whether the payment service may create a PaymentIntent without a lookup.
        placed_at=datetime.fromisoformat(order["placed_at"]),
    )


def refund_requested(refund: Mapping[str, Any]) -> RefundRequestedEvent:
    """The event of a stored refund. Raises as order_placed does."""
    requested = RefundRequested(
        order_id=refund["order_id"],
        refund_id=refund["refund_id"],
        attempt=refund["attempt"],
        amount_minor=refund["amount_minor"],
        currency=refund["currency"],
        requested_at=datetime.fromisoformat(refund["requested_at"]),
    )
    return RefundRequestedEvent.of(requested, correlation_id=refund["correlation_id"])
