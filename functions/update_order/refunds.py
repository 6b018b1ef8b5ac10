"""A refund's outcome, written to the refund; the amount of one that failed is free to be refunded again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger

from onecharge.contract.events import RefundOutcomeEvent
from onecharge.contract.states import OrderStatus, RefundStatus
from onecharge.orders.items import expires_at
from onecharge.runtime.consumer import Disposition, Done
from onecharge.runtime.dynamodb import expression_values, to_item
from update_order.transitions import REFUND_TRANSITIONS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef, UpdateTypeDef


class NoSuchRefund(Exception):
    """An outcome for a refund that the table does not have: it is tried again, and ends in the DLQ."""


class RefundConflict(Exception):
    """The refund does not match the outcome: another amount, or a status that changes at this moment. Retried."""


@dataclass(frozen=True)
class UpdateRefund:
    """Writes the outcomes of refunds, each with one transaction."""

    client: "DynamoDBClient"
    orders_table: str
    refunds_table: str
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, event: RefundOutcomeEvent) -> Disposition:
        status, origins = REFUND_TRANSITIONS[event.type]
        try:
            before = self._move(event, status, origins)
        except NoSuchRefund:
            if not self._is_canceled(event.data.order_id):
                raise
            # Nobody has requested it: the payment service refunds a canceled order that was charged by itself.
            self.count("CanceledOrderRefunded")
            self._log("refund of a canceled order", event, status)
            return Done()
        is_moved = before in origins
        self.count(f"RefundStatus.{status}" if is_moved else "RefundUpdateIgnored")
        self._log("refund updated" if is_moved else "refund update ignored: stale or duplicate", event, status)
        if is_moved and before is RefundStatus.SUCCEEDED:
            self._report_returned(event)
        return Done()

    def _move(self, event: RefundOutcomeEvent, status: RefundStatus, origins: frozenset[RefundStatus]) -> RefundStatus:
        """Write the outcome over the status that the refund has; returns that status, which may be no origin."""
        expected = RefundStatus.PENDING
        for _ in RefundStatus:
            found = self._write(event, status, expected)
            if found is None:
                return expected
            if found not in origins:
                return found
            expected = found
        raise RefundConflict(event.data.refund_id)

    def _write(self, event: RefundOutcomeEvent, status: RefundStatus, expected: RefundStatus) -> RefundStatus | None:
        """Write the outcome if the refund has the expected status; returns None, or the status that it has."""
        writes: list[TransactWriteItemTypeDef] = [{"Update": self._outcome(event, status, expected)}]
        if status is RefundStatus.FAILED:
            # In one transaction: released twice, the amount could be refunded twice.
            writes.append({"Update": self._release(event)})
        try:
            self.client.transact_write_items(TransactItems=writes)
        except self.client.exceptions.TransactionCanceledException as canceled:
            refund = canceled.response["CancellationReasons"][0]
            if refund.get("Code") != "ConditionalCheckFailed":
                raise  # A conflict with another write, or an order that is gone: the message comes back.
            if "Item" not in refund:
                raise NoSuchRefund(event.data.refund_id) from None
            item: Mapping[str, Any] = refund["Item"]
            return RefundStatus(item["status"]["S"])
        return None

    def _outcome(self, event: RefundOutcomeEvent, status: RefundStatus, expected: RefundStatus) -> "UpdateTypeDef":
        code = event.data.failure_code
        is_final = status is not RefundStatus.NEEDS_REVIEW
        return {
            "TableName": self.refunds_table,
            "Key": to_item({"order_id": event.data.order_id, "refund_id": event.data.refund_id}),
            "UpdateExpression": "SET #status = :status"
            + (", failure_code = :code" if code else "")
            + (", expires_at = :expires_at" if is_final else ""),
            "ConditionExpression": "#status = :expected AND amount_minor = :amount",
            "ExpressionAttributeNames": {"#status": "status"},
            "ExpressionAttributeValues": expression_values(
                status=status,
                expected=expected,
                amount=event.data.amount_minor,
                code=code or None,
                expires_at=expires_at(event.data.occurred_at) if is_final else None,
            ),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _release(self, event: RefundOutcomeEvent) -> "UpdateTypeDef":
        """The reservation ends. Stripe's figure falls by an event of the payment's own, if it included this refund."""
        return {
            "TableName": self.orders_table,
            "Key": to_item({"order_id": event.data.order_id}),
            "UpdateExpression": "SET refunded_minor = refunded_minor - :amount",
            "ConditionExpression": "refunded_minor >= :amount",
            "ExpressionAttributeValues": expression_values(amount=event.data.amount_minor),
        }

    def _is_canceled(self, order_id: str) -> bool:
        answer = self.client.get_item(
            TableName=self.orders_table, Key=to_item({"order_id": order_id}), ConsistentRead=True
        )
        return answer.get("Item", {}).get("status") == {"S": OrderStatus.CANCELED}

    def _report_returned(self, event: RefundOutcomeEvent) -> None:
        """The customer expects the money, and it does not come: somebody has to find another way."""
        self.count("RefundReturned")
        self.count("Alarm")
        self.logger.error(
            "a refund failed after it had succeeded: its amount can be refunded again",
            extra={
                "order_id": event.data.order_id,
                "refund_id": event.data.refund_id,
                "failure_code": event.data.failure_code,
                "correlation_id": event.correlationid,
            },
        )

    def _log(self, message: str, event: RefundOutcomeEvent, status: RefundStatus) -> None:
        self.logger.info(
            message,
            extra={
                "status": status,
                "order_id": event.data.order_id,
                "refund_id": event.data.refund_id,
                "attempt": event.data.attempt,
                "correlation_id": event.correlationid,
            },
        )
