"""The OrderRefunds table: a refund is written in one transaction with its order, whose sums say what is left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onecharge.contract.refund_events import RefundOutcome, RefundState
from onecharge.contract.states import OrderStatus
from onecharge.orders.refund_schema import StoredRefund
from onecharge.orders.schema import StoredOrder, status_update
from onecharge.runtime.dynamodb import expression_values, set_expression, shard_of, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


@dataclass(frozen=True)
class OrderRefundStore:
    """The OrderRefunds table, and the reservations on the Orders table, through botocore's client."""

    client: "DynamoDBClient"
    table: str
    orders_table: str

    def store_and_reserve(self, refund: StoredRefund, order: StoredOrder, others: Sequence[StoredRefund]) -> bool:
        """Both or neither; False if the order has changed since it was read, or there is such a refund by now.

        The only place that reserves: no more is refunded than was paid.
        """
        put: TransactWriteItemTypeDef = {
            "Put": {
                "TableName": self.table,
                "Item": to_item({**refund.model_dump(), "waiting_shard": shard_of(refund.order_id)}),
                "ConditionExpression": "attribute_not_exists(refund_id)",
            }
        }
        return self._write([put], order, {"pending_refunds_minor": pending_minor([*others, refund])})

    def write_outcome(
        self,
        order: StoredOrder,
        refunds: Sequence[StoredRefund],
        refund: StoredRefund,
        outcome: RefundOutcome,
        to: RefundState | None,
    ) -> bool:
        """The refund's outcome, the end of its reservation and Stripe's total, all or none; False if one has changed.

        Written one after the other, what is left would for a moment be too much.

        Args:
            refunds: all of the order, read after it.
            to: None if the refund stays as it is.
        """
        waiting = [each for each in refunds if to is None or each.refund_id != refund.refund_id]
        facts: dict[str, Any] = {"pending_refunds_minor": pending_minor(waiting)}
        # What moves the order to PAID writes these, too.
        if order.status is OrderStatus.PAID and outcome.revision > order.payment_revision:
            facts |= {"payment_revision": outcome.revision, "stripe_refunded_minor": outcome.amount_refunded_minor}
            facts |= {"dispute_status": outcome.dispute_status} if outcome.dispute_status else {}
        return self._write([self._outcome(refund, outcome, to)] if to else [], order, facts)

    def count(self, order: StoredOrder, refunds: Sequence[StoredRefund]) -> bool:
        """Let the order's sum be what waits of its refunds, read after it; False if the order has changed since."""
        return self._write([], order, {"pending_refunds_minor": pending_minor(refunds)})

    def _outcome(self, refund: StoredRefund, outcome: RefundOutcome, to: RefundState) -> "TransactWriteItemTypeDef":
        given = {name: getattr(outcome, name) for name in ("stripe_refund_id", "failure_code", "pending_reason")}
        changes = {"#status": to, "revision": refund.revision + 1, "told_at": outcome.occurred_at.isoformat()}
        changes |= {name: value for name, value in given.items() if value is not None}
        sets = {name: f":{name.lstrip('#')}" for name in changes}
        update, kept = status_update(refund.order_id, sets, waits=False, at=outcome.occurred_at)
        update += "".join(f", {name}" for name, value in given.items() if value is None)
        values = {sets[name]: value for name, value in changes.items()}
        return {
            "Update": {
                "TableName": self.table,
                "Key": to_item({"order_id": refund.order_id, "refund_id": refund.refund_id}),
                "UpdateExpression": update,
                "ConditionExpression": "attribute_exists(refund_id) AND " + _is_still("revision", refund.revision),
                "ExpressionAttributeNames": {"#status": "status"},
                "ExpressionAttributeValues": to_item({**values, **kept, ":was_revision": refund.revision}),
            }
        }

    def _write(self, of_refund: "list[TransactWriteItemTypeDef]", order: StoredOrder, facts: Mapping[str, Any]) -> bool:
        """Write the refund, and the order if it is as it was read: what is left to refund was computed from it."""
        known = {"refunds_revision": order.refunds_revision, "payment_revision": order.payment_revision}
        facts = {**facts, "refunds_revision": order.refunds_revision + 1}
        conditions = ["#status = :status", *(_is_still(name, value) for name, value in known.items())]
        of_order: TransactWriteItemTypeDef = {
            "Update": {
                "TableName": self.orders_table,
                "Key": to_item({"order_id": order.order_id}),
                "UpdateExpression": set_expression({name: f":{name}" for name in facts}),
                "ConditionExpression": " AND ".join(conditions),
                "ExpressionAttributeNames": {"#status": "status"},
                "ExpressionAttributeValues": expression_values(
                    **facts, status=order.status, **{f"was_{name}": value for name, value in known.items()}
                ),
            }
        }
        try:
            self.client.transact_write_items(TransactItems=[*of_refund, of_order])
        except self.client.exceptions.TransactionCanceledException as canceled:
            codes = {reason.get("Code") for reason in canceled.response["CancellationReasons"]}
            if codes & {"ConditionalCheckFailed", "TransactionConflict"}:
                return False
            raise
        return True

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


def pending_minor(refunds: Sequence[StoredRefund]) -> int:
    """The sum of those that are PENDING: counted anew each time, since a table may be put back from a backup."""
    return sum(each.amount_minor for each in refunds if each.status is RefundState.PENDING)


def _is_still(name: str, read: int) -> str:
    """The condition that an attribute is as it was read; one that the item lacks was read as 0."""
    return f"{name} = :was_{name}" if read else f"(attribute_not_exists({name}) OR {name} = :was_{name})"
