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
    RefundEventType,
    RefundOutcome,
    RefundOutcomeEvent,
    RefundRequested,
    RefundRequestedEvent,
)
from onecharge.orders import order_placed
from onecharge.states import PaymentState, OrderStatus, RefundState, RefundStatus
from onecharge.topics import PublishedEvent

EVENT_TYPES: Mapping[PaymentState, PaymentEventType] = {
    PaymentState.SUCCEEDED: EventType.PAYMENT_SUCCEEDED,
    PaymentState.DECLINED: EventType.PAYMENT_DECLINED,
    PaymentState.REQUIRES_ACTION: EventType.PAYMENT_REQUIRES_ACTION,
    PaymentState.NEEDS_REVIEW: EventType.PAYMENT_NEEDS_REVIEW,
    PaymentState.CANCELED: EventType.PAYMENT_CANCELED,
}

REFUND_EVENT_TYPES: Mapping[RefundState, RefundEventType] = {
    RefundState.SUCCEEDED: EventType.REFUND_SUCCEEDED,
    RefundState.FAILED: EventType.REFUND_FAILED,
    RefundState.NEEDS_REVIEW: EventType.REFUND_NEEDS_REVIEW,
}


def event_in(record: Mapping[str, Any]) -> PublishedEvent | None:
    """The event that a stream record stands for, or None if it is nobody else's business.

    A row of the payment service's tables has a state, an item of the order service's has a status.
    """
    image = record["dynamodb"].get("NewImage")
    if image is None:  # Deleted, as by its time to live.
        return None
    values = from_item(image)
    if "refund_id" in values:
        return _refund_outcome(values) if "state" in values else _refund_requested(values)
    if "state" in values:
        return _payment_outcome(values)
    if values["status"] == OrderStatus.PENDING:
        # A new order, or a new attempt to pay one.
        return order_placed(values)
    return None


def _payment_outcome(row: Mapping[str, Any]) -> PaymentOutcomeEvent | None:
    event_type = EVENT_TYPES.get(PaymentState(row["state"]))
    if event_type is None:
        return None
    outcome = PaymentOutcome(
        order_id=row["order_id"],
        attempt=row["attempt"],
        amount_minor=row["amount_minor"],
        currency=row["currency"],
        payment_intent_id=row.get("payment_intent_id"),
        decline_code=row.get("decline_code"),
        client_secret=row.get("client_secret") if event_type is EventType.PAYMENT_REQUIRES_ACTION else None,
        occurred_at=datetime.fromtimestamp(row["settled_at"], UTC),
    )
    return PaymentOutcomeEvent.of(event_type, outcome, correlation_id=row["correlation_id"])


def _refund_requested(refund: Mapping[str, Any]) -> RefundRequestedEvent | None:
    if refund["status"] != RefundStatus.PENDING:
        return None
    requested = RefundRequested(
        order_id=refund["order_id"],
        refund_id=refund["refund_id"],
        attempt=refund["attempt"],
        amount_minor=refund["amount_minor"],
        currency=refund["currency"],
        requested_at=datetime.fromisoformat(refund["requested_at"]),
    )
    return RefundRequestedEvent.of(requested, correlation_id=refund["correlation_id"])


def _refund_outcome(row: Mapping[str, Any]) -> RefundOutcomeEvent | None:
    event_type = REFUND_EVENT_TYPES.get(RefundState(row["state"]))
    if event_type is None:
        return None
    outcome = RefundOutcome(
        order_id=row["order_id"],
        refund_id=row["refund_id"],
        attempt=row["attempt"],
        amount_minor=row["amount_minor"],
        currency=row["currency"],
        stripe_refund_id=row.get("stripe_refund_id"),
        failure_code=row.get("failure_code"),
        occurred_at=datetime.fromtimestamp(row["settled_at"], UTC),
    )
    return RefundOutcomeEvent.of(event_type, outcome, correlation_id=row["correlation_id"])
