"""The event that a stream record is published as: pure, and the same event for the same record every time.

Orders ─► an order that is PENDING ─► OrderPlaced ─► SNS order-events
Orders ─► an order that is CANCELING ─► CancelRequested ─► SNS order-events
OrderRefunds ─► a refund that is PENDING ─► RefundRequested ─► SNS order-events
Payments ─► the outcome of an attempt to pay ─► PaymentOutcome ─► SNS payment-events
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from onecharge.contract.events import PAYMENT_EVENT_TYPES, Event, EventType, PaymentOutcome, PaymentOutcomeEvent
from onecharge.contract.refund_events import RefundRequestedEvent, RefundState
from onecharge.contract.states import PaymentState
from onecharge.orders.refund_schema import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.runtime.dynamodb import from_item

Item = Mapping[str, Any]
"""An item in DynamoDB's JSON, as in the stream's NewImage."""


def order_event_from_item(item: Item) -> Event | None:
    """The event of an order that waits for the payment service. Raises ValueError if the item breaks the schema."""
    return StoredOrder.from_item(item).event()


def payment_outcome_from_item(item: Item) -> PaymentOutcomeEvent | None:
    """The outcome of an attempt; None while it is PENDING. Raises KeyError, TypeError or ValueError."""
    row = from_item(item)
    event_type = PAYMENT_EVENT_TYPES.get(PaymentState(row["state"]))
    if event_type is None:
        return None
    is_paid = event_type is EventType.PAYMENT_SUCCEEDED
    is_unpaid = event_type in (EventType.PAYMENT_DECLINED, EventType.PAYMENT_CANCELED)
    outcome = PaymentOutcome(
        order_id=row["order_id"],
        attempt=row["attempt"],
        amount_minor=row["amount_minor"],
        currency=row["currency"],
        payment_intent_id=row.get("payment_intent_id"),
        payment_method=row.get(f"payment_method_{row['attempt']}"),
        reason=row.get("reason") if is_unpaid else None,
        amount_refunded_minor=row.get("amount_refunded_minor", 0) if is_paid else None,
        dispute_status=row.get("dispute_status") if is_paid else None,
        revision=row["revision"],
        occurred_at=datetime.fromtimestamp(row["finalized_at"], UTC),
    )
    return PaymentOutcomeEvent.of(event_type, outcome, correlation_id=row["correlation_id"])


# ---------------------------------------------------------------- refunds, and all tables


def refund_requested_from_item(item: Item) -> RefundRequestedEvent | None:
    """The request for a refund, while it is PENDING. Raises ValueError if the item breaks the schema."""
    refund = StoredRefund.from_item(item)
    return refund.requested_event() if refund.status is RefundState.PENDING else None


EventFromItem = Callable[[Item], Event | None]
"""The mapping of a table; None for an item that is not published."""

TABLES: Mapping[str, EventFromItem] = {
    "ORDERS_TABLE": order_event_from_item,
    "ORDER_REFUNDS_TABLE": refund_requested_from_item,
    "PAYMENTS_TABLE": payment_outcome_from_item,
}
"""Every table whose stream is published: the environment variable that has its name, and its mapping."""
