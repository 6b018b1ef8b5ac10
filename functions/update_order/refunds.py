"""The outcome of a refund, written to it; the amount of a refund that failed can be refunded again."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from onecharge.contract.refunds import RefundOutcome, RefundOutcomeEvent, RefundState
from onecharge.orders.refunds import REFUND_OUTCOMES, RefundTransition, waits
from onecharge.orders.schema import status_update
from onecharge.orders.store import OrderStore
from onecharge.runtime.alarms import Cause, RowMissing
from onecharge.runtime.consumer import Disposition, Done
from onecharge.runtime.dynamodb import expression_values, to_item
from onecharge.runtime.metrics import Alarm

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef, UpdateTypeDef


class NoSuchRefund(RowMissing):
    """The table has no such refund: the message is retried, and ends in the DLQ."""


class RefundConflict(Exception):
    """The refund has another amount than the outcome, or its status keeps changing. The message is retried."""


class _NothingToRelease(Exception):
    """The order has reserved less than the refund, or is gone."""


def update_refund(
    event: RefundOutcomeEvent,
    *,
    orders: OrderStore,
    refunds_table: str,
    logger: Logger,
    count: Callable[[str], None],
) -> Disposition:
    """Write one outcome, in one transaction that is idempotent by itself. Raises NoSuchRefund, RefundConflict."""
    transition = REFUND_OUTCOMES[event.type]
    fields = {"status": transition.status, "refund_id": event.data.refund_id, **event.log_fields}
    before = _move(orders, refunds_table, event.data, transition)
    is_moved = before in transition.origins
    if not is_moved and before is transition.status is RefundState.SUCCEEDED:
        _write_pending_reason(orders, refunds_table, event.data)
    count(f"RefundStatus.{transition.status}" if is_moved else "RefundUpdateIgnored")
    logger.info("refund updated" if is_moved else "refund update ignored: stale or duplicate", extra=fields)
    if is_moved and before is RefundState.SUCCEEDED:
        # The customer expects the money and does not get it: a person has to find another way.
        count("RefundReturned")
        count(Alarm(Cause.REFUND_FAILED))
        logger.error(
            "a refund failed after it had succeeded: refund its amount again, or in another way",
            extra={"failure_code": event.data.failure_code, "cause": Cause.REFUND_FAILED, **fields},
        )
    return Done()


def _move(orders: OrderStore, refunds_table: str, outcome: RefundOutcome, transition: RefundTransition) -> RefundState:
    """Move the refund; returns the status that it had, which may be no origin: then it ignored the outcome."""
    expected, release = RefundState.PENDING, _release_reservation
    for _ in range(len(RefundState) + 1):
        try:
            found = _write(orders, refunds_table, outcome, transition, expected, release)
        except _NothingToRelease:
            release = _keep
            continue
        if found is None:
            return expected
        if found not in transition.origins:
            return found
        expected = found
    raise RefundConflict(outcome.refund_id)


def _write(
    orders: OrderStore,
    refunds_table: str,
    outcome: RefundOutcome,
    transition: RefundTransition,
    expected: RefundState,
    release: "Callable[[OrderStore, RefundOutcome], UpdateTypeDef]",
) -> RefundState | None:
    """Write the outcome if the refund has the expected status; returns None, or the status that it has.

    Raises NoSuchRefund, and _NothingToRelease.
    """
    writes: list[TransactWriteItemTypeDef] = [{"Update": _outcome(refunds_table, outcome, transition, expected)}]
    if transition.status is RefundState.FAILED:
        # In one transaction: released twice, the amount could be refunded twice.
        writes.append({"Update": release(orders, outcome)})
    try:
        orders.client.transact_write_items(TransactItems=writes)
    except orders.client.exceptions.TransactionCanceledException as canceled:
        refund, *order = canceled.response["CancellationReasons"]
        if refund.get("Code") != "ConditionalCheckFailed":
            if release is _release_reservation and order and order[0].get("Code") == "ConditionalCheckFailed":
                raise _NothingToRelease from None
            raise  # A conflict with another write, or the order is gone: the message is retried.
        if "Item" not in refund:
            raise NoSuchRefund(outcome.refund_id) from None
        item: Mapping[str, Any] = refund["Item"]
        return RefundState(item["status"]["S"])
    return None


def _outcome(
    refunds_table: str, outcome: RefundOutcome, transition: RefundTransition, expected: RefundState
) -> "UpdateTypeDef":
    code = outcome.failure_code or None
    changes = {"#status": ":status", "outcome_revision": ":revision"}
    given = {"failure_code": code, "pending_reason": outcome.pending_reason}
    changes |= {name: f":{name}" for name, value in given.items() if value}
    update, kept = status_update(outcome.order_id, changes, waits=waits(transition.status), at=outcome.occurred_at)
    values = {":status": transition.status, ":expected": expected, ":amount": outcome.amount_minor}
    values |= {":revision": outcome.revision, **{f":{name}": value for name, value in given.items()}}
    return {
        "TableName": refunds_table,
        "Key": to_item({"order_id": outcome.order_id, "refund_id": outcome.refund_id}),
        "UpdateExpression": update,
        "ConditionExpression": "#status = :expected AND amount_minor = :amount",
        "ExpressionAttributeNames": {"#status": "status"},
        "ExpressionAttributeValues": to_item({**values, **kept}),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _write_pending_reason(orders: OrderStore, refunds_table: str, outcome: RefundOutcome) -> None:
    """Write what the newest revision of the refund's row says: Stripe may begin or cease to hold it."""
    reason = " REMOVE pending_reason" if outcome.pending_reason is None else ", pending_reason = :reason"
    with suppress(orders.client.exceptions.ConditionalCheckFailedException):
        orders.client.update_item(
            TableName=refunds_table,
            Key=to_item({"order_id": outcome.order_id, "refund_id": outcome.refund_id}),
            UpdateExpression=f"SET outcome_revision = :revision{reason}",
            ConditionExpression="#status = :succeeded AND outcome_revision < :revision",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues=expression_values(
                revision=outcome.revision, reason=outcome.pending_reason, succeeded=RefundState.SUCCEEDED
            ),
        )


def _release_reservation(orders: OrderStore, outcome: RefundOutcome) -> "UpdateTypeDef":
    """Release the reservation. If Stripe's total included this refund, another event of the payment lowers it."""
    return {
        "TableName": orders.table,
        "Key": to_item({"order_id": outcome.order_id}),
        "UpdateExpression": "SET reserved_minor = reserved_minor - :amount",
        "ConditionExpression": "reserved_minor >= :amount",
        "ExpressionAttributeValues": expression_values(amount=outcome.amount_minor),
    }


def _keep(orders: OrderStore, outcome: RefundOutcome) -> "UpdateTypeDef":
    """Keep what is reserved: the order was restored to a time before the refund, and has only other reservations."""
    return {
        "TableName": orders.table,
        "Key": to_item({"order_id": outcome.order_id}),
        "UpdateExpression": "SET reserved_minor = if_not_exists(reserved_minor, :zero)",
        "ConditionExpression": (
            "attribute_exists(order_id) AND (attribute_not_exists(reserved_minor) OR reserved_minor < :amount)"
        ),
        "ExpressionAttributeValues": expression_values(zero=0, amount=outcome.amount_minor),
    }
