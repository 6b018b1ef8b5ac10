"""The OrderRefunds table: a refund is written in one transaction with its order, which has Stripe's total."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecharge.contract.refund_events import RefundOutcome, RefundState
from onecharge.contract.states import OrderStatus
from onecharge.orders.refund_schema import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import ORDER_RETENTION_SECONDS
from onecharge.runtime.dynamodb import expression_values, set_expression, shard_of, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True)
class OrderRefundStore:
    """The OrderRefunds table and its transactions with the Orders table, through botocore's client.

    Whoever writes a refund has read the order first, and then its refunds: each write raises the order's
    `refunds_revision`, on condition that nobody else did since.
    """

    client: "DynamoDBClient"
    table: str
    orders_table: str

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

    def store(self, refund: StoredRefund, order: StoredOrder) -> bool:
        """Store a new refund; False if the order has changed since it was read, or there is such a refund by now.

        The only place that reserves: no more is refunded than was paid.
        """
        item = {**refund.model_dump(), "waiting_shard": shard_of(refund.order_id)}
        return self._write(item, "attribute_not_exists(refund_id)", order, {})

    def store_outcome(self, refund: StoredRefund, order: StoredOrder, outcome: RefundOutcome) -> bool:
        """Store the refund with its outcome, and Stripe's total; False if the order has changed since it was read.

        Written one after the other, what is left would for a moment be too much.
        """
        facts: dict[str, Any] = {}
        # What moves the order to PAID writes these, too.
        if order.status is OrderStatus.PAID and outcome.revision > order.payment_revision:
            facts = {"payment_revision": outcome.revision, "stripe_refunded_minor": outcome.amount_refunded_minor}
            facts |= {"dispute_status": outcome.dispute_status} if outcome.dispute_status else {}
        expires_at = int(outcome.occurred_at.timestamp()) + ORDER_RETENTION_SECONDS
        item = {**refund.model_dump(), "expires_at": expires_at}
        return self._write(item, "attribute_exists(refund_id)", order, facts)

    def _write(self, refund: Mapping[str, Any], condition: str, order: StoredOrder, facts: Mapping[str, Any]) -> bool:
        """Write both if the order is as it was read: what is left was computed from it. PAID is terminal."""
        known = {"refunds_revision": order.refunds_revision, "payment_revision": order.payment_revision}
        facts = {**facts, "refunds_revision": order.refunds_revision + 1}
        was = {f"was_{name}": value for name, value in known.items()}
        put: Any = {"TableName": self.table, "Item": to_item(refund), "ConditionExpression": condition}
        update: Any = {
            "TableName": self.orders_table,
            "Key": to_item({"order_id": order.order_id}),
            "UpdateExpression": set_expression({name: f":{name}" for name in facts}),
            "ConditionExpression": " AND ".join(["attribute_exists(order_id)", *map(_is_still, known, known.values())]),
            "ExpressionAttributeValues": expression_values(**facts, **was),
        }
        try:
            self.client.transact_write_items(TransactItems=[{"Put": put}, {"Update": update}])
        except self.client.exceptions.TransactionCanceledException as canceled:
            codes = {reason.get("Code") for reason in canceled.response["CancellationReasons"]}
            if codes & {"ConditionalCheckFailed", "TransactionConflict"}:
                return False
            raise
        return True


def left_minor(order: StoredOrder, refunds: Sequence[StoredRefund]) -> int:
    """What can still be refunded, by the last event: not what Stripe has refunded, nor what waits.

    Counted anew each time, since either table may be put back from a backup.
    """
    made, waiting = (
        sum(each.amount_minor for each in refunds if each.status is state)
        for state in (RefundState.SUCCEEDED, RefundState.PENDING)
    )
    return order.amount_minor - max(order.stripe_refunded_minor, made) - waiting


def _is_still(name: str, read: int) -> str:
    """The condition that an attribute is as it was read; one that the item lacks was read as 0."""
    return f"{name} = :was_{name}" if read else f"(attribute_not_exists({name}) OR {name} = :was_{name})"
