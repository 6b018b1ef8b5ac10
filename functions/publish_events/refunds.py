"""The events of refunds: of the OrderRefunds table (order service) and the Refunds table (payment service)."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from onecharge.contract.refunds import (
    RefundEventType,
    RefundOutcome,
    RefundOutcomeEvent,
    RefundOutcomeType,
    RefundRequestedEvent,
    RefundState,
    RefundStatus,
)
from onecharge.orders.refunds import StoredRefund
from onecharge.runtime.dynamodb import from_item

REFUND_EVENT_TYPES: Mapping[RefundState, RefundOutcomeType] = {
    RefundState.SUCCEEDED: RefundEventType.SUCCEEDED,
    RefundState.FAILED: RefundEventType.FAILED,
    RefundState.NEEDS_REVIEW: RefundEventType.NEEDS_REVIEW,
}


def refund_requested_from_item(item: Mapping[str, Any]) -> RefundRequestedEvent | None:
    """The request for a refund, while it is PENDING. Raises ValueError if the item breaks the schema."""
    refund = StoredRefund.from_item(item)
    return refund.requested_event() if refund.status is RefundStatus.PENDING else None


def refund_outcome_from_item(item: Mapping[str, Any]) -> RefundOutcomeEvent | None:
    """The outcome of a refund; None while it is PENDING. Raises KeyError, TypeError or ValueError."""
    row = from_item(item)
    event_type = REFUND_EVENT_TYPES.get(RefundState(row["state"]))
    if event_type is None or row.get("is_internal"):
        # The payment service itself refunds a canceled order that was charged: the order service requested nothing.
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
