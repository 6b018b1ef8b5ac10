"""A refund's outcome, written to the refund; the amount of one that failed is given back to its order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aws_lambda_powertools import Logger

from onecharge.deliveries import Disposition, Done
from onecharge.dynamodb import expression_values, to_item
from onecharge.events import EventType, RefundEventType, RefundOutcomeEvent
from onecharge.states import RefundStatus

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef, UpdateTypeDef

STATUS: Mapping[RefundEventType, RefundStatus] = {
    EventType.REFUND_SUCCEEDED: RefundStatus.SUCCEEDED,
    EventType.REFUND_FAILED: RefundStatus.FAILED,
    EventType.REFUND_NEEDS_REVIEW: RefundStatus.NEEDS_REVIEW,
}


class NoSuchRefund(Exception):
    """An outcome for a refund that the table does not have: it is tried again, and ends in the DLQ."""


@dataclass(frozen=True)
class UpdateRefund:
    """Writes what refunds came to, each with one transaction."""

    client: "DynamoDBClient"
    orders_table: str
    refunds_table: str
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, event: RefundOutcomeEvent) -> Disposition:
        """Write the outcome, once: a refund that is not PENDING any more has been told."""
        status = STATUS[event.type]
        moved = self._move(event, status)
        self.count(f"Refund.{status}" if moved else "RefundUnmoved")
        self.logger.info(
            "refund moved" if moved else "refund stands where it stood",
            extra={
                "status": status,
                "order_id": event.data.order_id,
                "refund_id": event.data.refund_id,
                "attempt": event.data.attempt,
                "correlation_id": event.correlationid,
            },
        )
        return Done()

    def _move(self, event: RefundOutcomeEvent, status: RefundStatus) -> bool:
        writes: list[TransactWriteItemTypeDef] = [{"Update": self._outcome(event, status)}]
        if status is RefundStatus.FAILED:
            # In one transaction: given back twice, the amount could be refunded twice.
            writes.append({"Update": self._give_back(event)})
        try:
            self.client.transact_write_items(TransactItems=writes)
        except self.client.exceptions.TransactionCanceledException as canceled:
            refund = canceled.response["CancellationReasons"][0]
            if refund.get("Code") != "ConditionalCheckFailed":
                raise  # A conflict with another write, or an order that is gone: the message comes back.
            if "Item" not in refund:
                raise NoSuchRefund(event.data.refund_id) from None
            return False
        return True

    def _outcome(self, event: RefundOutcomeEvent, status: RefundStatus) -> "UpdateTypeDef":
        code = event.data.failure_code
        return {
            "TableName": self.refunds_table,
            "Key": to_item({"order_id": event.data.order_id, "refund_id": event.data.refund_id}),
            "UpdateExpression": "SET #status = :status" + (", failure_code = :code" if code else ""),
            "ConditionExpression": "#status = :pending AND amount_minor = :amount",
            "ExpressionAttributeNames": {"#status": "status"},
            "ExpressionAttributeValues": expression_values(
                status=status, pending=RefundStatus.PENDING, amount=event.data.amount_minor, code=code
            ),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }

    def _give_back(self, event: RefundOutcomeEvent) -> "UpdateTypeDef":
        return {
            "TableName": self.orders_table,
            "Key": to_item({"order_id": event.data.order_id}),
            "UpdateExpression": "SET refunded_minor = refunded_minor - :amount",
            "ConditionExpression": "refunded_minor >= :amount",
            "ExpressionAttributeValues": expression_values(amount=event.data.amount_minor),
        }
