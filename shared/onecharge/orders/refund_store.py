"""The OrderRefunds table as the API writes and reads it; update_order writes the outcome of a refund.

A refund is stored in one transaction with the reservation of its amount on the order, so that no more is requested than
was paid.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecharge.contract.states import OrderStatus
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.runtime.dynamodb import expression_values, shard_of, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import PutTypeDef, UpdateTypeDef


@dataclass(frozen=True)
class OrderRefundStore:
    """The OrderRefunds table, and the reservations on the Orders table, through botocore's client."""

    client: "DynamoDBClient"
    table: str
    orders_table: str

    def store_and_reserve(self, refund: StoredRefund, order: StoredOrder) -> bool:
        """Both or neither; False if the order has changed since it was read, or there is such a refund by now."""
        try:
            self.client.transact_write_items(
                TransactItems=[{"Put": self._put(refund)}, {"Update": self._reservation(refund, order)}]
            )
        except self.client.exceptions.TransactionCanceledException as canceled:
            codes = {reason.get("Code") for reason in canceled.response["CancellationReasons"]}
            if codes & {"ConditionalCheckFailed", "TransactionConflict"}:
                return False
            raise
        return True

    def _put(self, refund: StoredRefund) -> "PutTypeDef":
        return {
            "TableName": self.table,
            "Item": to_item({**refund.model_dump(), "waiting_shard": shard_of(refund.order_id)}),
            "ConditionExpression": "attribute_not_exists(refund_id)",
        }

    def _reservation(self, refund: StoredRefund, order: StoredOrder) -> "UpdateTypeDef":
        """The only place that decides that no more is refunded than was paid."""
        is_paid = "#status = :paid"
        is_left = "(attribute_not_exists(reserved_minor) OR reserved_minor <= :most)"
        # Stripe's total includes refunds made in the Dashboard. What is left was computed from this total, or more is.
        stripe_shows_no_more = "(attribute_not_exists(stripe_refunded_minor) OR stripe_refunded_minor <= :stripe)"
        return {
            "TableName": self.orders_table,
            "Key": to_item({"order_id": order.order_id}),
            "UpdateExpression": "SET reserved_minor = if_not_exists(reserved_minor, :zero) + :amount",
            "ConditionExpression": " AND ".join([is_paid, is_left, stripe_shows_no_more]),
            "ExpressionAttributeNames": {"#status": "status"},
            "ExpressionAttributeValues": expression_values(
                zero=0,
                amount=refund.amount_minor,
                most=order.amount_minor - refund.amount_minor,
                paid=OrderStatus.PAID,
                stripe=order.stripe_refunded_minor,
            ),
        }

    def find(self, order_id: str, refund_id: str) -> StoredRefund | None:
        """The refund as it is, read consistently."""
        key = to_item({"order_id": order_id, "refund_id": refund_id})
        answer = self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)
        return StoredRefund.from_item(answer["Item"]) if "Item" in answer else None

    def of_order(self, order_id: str) -> list[StoredRefund]:
        """The order's refunds, the oldest first; at most one page of DynamoDB (1 MB), which is hundreds."""
        answer = self.client.query(
            TableName=self.table,
            KeyConditionExpression="order_id = :order_id",
            ExpressionAttributeValues=expression_values(order_id=order_id),
            ConsistentRead=True,
        )
        refunds = map(StoredRefund.from_item, answer["Items"])
        return sorted(refunds, key=lambda refund: (refund.requested_at, refund.refund_id))
