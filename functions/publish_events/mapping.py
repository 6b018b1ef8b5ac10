"""Which event a stream record stands for: pure, and the same event for the same record every time."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from onecharge.contract.events import (
    EventType,
    PaymentEventType,
    PaymentOutcome,
    PaymentOutcomeEvent,
    RefundEventType,
    RefundOutcome,
    RefundOutcomeEvent,
    RefundRequestedEvent,
)
from onecharge.contract.states import OrderStatus, PaymentState, RefundState, RefundStatus
from onecharge.orders.items import cancel_requested, order_placed, refund_requested
from onecharge.runtime.dynamodb import from_item
from onecharge.runtime.topics import OrderServiceEvent, PublishedEvent

PAYMENT_EVENT_TYPES: Mapping[PaymentState, PaymentEventType] = {
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


class UnknownTable(Exception):
    """The record is of a table that nothing is published from."""


@dataclass(frozen=True)
class Tables:
    """The names of the tables whose streams are published."""

    orders: str
    order_refunds: str
    payments: str
    refunds: str

    def event_from_record(self, record: Mapping[str, Any]) -> PublishedEvent | None:
        """The event that a stream record stands for, or None if it is published to nobody.

        The stream's ARN says which table the record is of, not its content: two tables may share an attribute's name.
        Raises UnknownTable, or KeyError, TypeError or ValueError if the item can be no event.
        """
        image = record["dynamodb"].get("NewImage")
        if image is None:  # Deleted, as by its time to live.
            return None
        table, values = _table_of(record), from_item(image)
        if table == self.orders:
            return _order_event(values)
        if table == self.order_refunds:
            return _refund_requested(values)
        if table == self.payments:
            return _payment_outcome(values)
        if table == self.refunds:
            return _refund_outcome(values)
        raise UnknownTable(table)


def _table_of(record: Mapping[str, Any]) -> str:
    """`orders` of `arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-11-01T00:00:00.000`."""
    return str(record["eventSourceARN"]).split("/")[1]


def _order_event(order: Mapping[str, Any]) -> OrderServiceEvent | None:
    match OrderStatus(order["status"]):
        case OrderStatus.PENDING:  # A new order, or a new attempt to pay one.
            return order_placed(order)
        case OrderStatus.CANCELING:
            return cancel_requested(order)
        case _:
            return None


def _refund_requested(refund: Mapping[str, Any]) -> RefundRequestedEvent | None:
    return refund_requested(refund) if refund["status"] == RefundStatus.PENDING else None


def _payment_outcome(row: Mapping[str, Any]) -> PaymentOutcomeEvent | None:
    event_type = PAYMENT_EVENT_TYPES.get(PaymentState(row["state"]))
    if event_type is None:
        return None
    is_paid = event_type is EventType.PAYMENT_SUCCEEDED
    is_declined = event_type is EventType.PAYMENT_DECLINED
    outcome = PaymentOutcome(
        order_id=row["order_id"],
        attempt=row["attempt"],
        amount_minor=row["amount_minor"],
        currency=row["currency"],
        payment_intent_id=row.get("payment_intent_id"),
        decline_code=row.get("decline_code") if is_declined else None,
        advice_code=row.get("advice_code") if is_declined else None,
        amount_refunded_minor=row.get("amount_refunded_minor") if is_paid else None,
        dispute_status=row.get("dispute_status") if is_paid else None,
        revision=row["revision"],
        occurred_at=datetime.fromtimestamp(row["finalized_at"], UTC),
    )
    return PaymentOutcomeEvent.of(event_type, outcome, correlation_id=row["correlation_id"])


def _refund_outcome(row: Mapping[str, Any]) -> RefundOutcomeEvent | None:
    event_type = REFUND_EVENT_TYPES.get(RefundState(row["state"]))
    if event_type is None or row.get("is_internal"):
        # The payment service refunds a canceled order that was charged by itself: nobody has requested it.
        return None
    outcome = RefundOutcome(
        order_id=row["order_id"],
        refund_id=row["refund_id"],
        attempt=row["attempt"],
        amount_minor=row["amount_minor"],
        currency=row["currency"],
        stripe_refund_id=row.get("stripe_refund_id"),
        failure_code=row.get("failure_code"),
        occurred_at=datetime.fromtimestamp(row["finalized_at"], UTC),
    )
    return RefundOutcomeEvent.of(event_type, outcome, revision=row["revision"], correlation_id=row["correlation_id"])
