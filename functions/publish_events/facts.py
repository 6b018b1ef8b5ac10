"""Which event a stream record stands for: pure, and the same event for the same record every time."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from onecharge.dynamodb import from_item
from onecharge.events import (
    EventType,
    PaymentEventType,
    PaymentOutcome,
    PaymentOutcomeEvent,
)
from onecharge.orders import order_placed
from onecharge.states import ChargeState, OrderStatus
from onecharge.topics import PublishedEvent

EVENT_TYPES: Mapping[ChargeState, PaymentEventType] = {
    ChargeState.SUCCEEDED: EventType.PAYMENT_SUCCEEDED,
    ChargeState.DECLINED: EventType.PAYMENT_DECLINED,
    ChargeState.REQUIRES_ACTION: EventType.PAYMENT_ACTION_REQUIRED,
    ChargeState.NEEDS_REVIEW: EventType.PAYMENT_REVIEW_NEEDED,
    ChargeState.CANCELLED: EventType.PAYMENT_CANCELLED,
}


def event_in(record: Mapping[str, Any]) -> PublishedEvent | None:
    """The event that a stream record stands for, or None if it is nobody else's business.

    A row of the Charges table has a state, an item of the Orders table has a status.
    """
    image = record["dynamodb"].get("NewImage")
    if image is None:  # Deleted, as by its time to live.
        return None
    values = from_item(image)
    if "state" in values:
        return _payment_outcome(values)
    if values["status"] == OrderStatus.PENDING:
        # A new order, or a new attempt to pay one.
        return order_placed(values)
    return None


def _payment_outcome(row: Mapping[str, Any]) -> PaymentOutcomeEvent | None:
    event_type = EVENT_TYPES.get(ChargeState(row["state"]))
    if event_type is None:
        return None
    outcome = PaymentOutcome(
        order_id=row["order_id"],
        attempt=row["attempt"],
        amount_minor=row["amount_minor"],
        currency=row["currency"],
        payment_intent_id=row.get("payment_intent_id"),
        decline_code=row.get("decline_code"),
        client_secret=row.get("client_secret") if event_type is EventType.PAYMENT_ACTION_REQUIRED else None,
        occurred_at=datetime.fromtimestamp(row["settled_at"], UTC),
    )
    return PaymentOutcomeEvent.of(event_type, outcome, correlation_id=row["correlation_id"])
