"""The orders that are PENDING, as the Orders table's index by status shows them; and when one of them is due."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from onecharge.dynamodb import to_item
from onecharge.states import OrderStatus

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

INDEX = "by_status"

DAY_SECONDS = 24 * 3600

FIRST_WAIT_SECONDS = 15 * 60
"""An order is paid within seconds: one that is PENDING for so long is published again."""

OrderKey = tuple[str, str]
"""Order id, and when the order was placed, as the index has it."""


def times_due(pending_seconds: float) -> int:
    """How often an order that has been PENDING for so long is to have been published again.

    After 15 minutes, again whenever that has doubled, and from the first day on daily: in an outage of Stripe's nothing
    was lost, each order's message is still in its queue, and every further one is one more that asks Stripe.
    """
    if pending_seconds < FIRST_WAIT_SECONDS:
        return 0
    doubled = int(min(pending_seconds, DAY_SECONDS - 1) // FIRST_WAIT_SECONDS).bit_length()
    return doubled + int(pending_seconds // DAY_SECONDS)


@dataclass(frozen=True)
class PendingOrders:
    """The Orders table through boto3's client. Every method makes exactly one request."""

    client: "DynamoDBClient"
    table: str

    def page(
        self, *, placed_until: float, after: OrderKey | None, limit: int
    ) -> tuple[list[OrderKey], OrderKey | None]:
        """So many that were placed until then, the oldest first, after that one; and where to go on, None at the end.

        Args:
            placed_until: epoch seconds.
        """
        start: dict[str, Any] = {"ExclusiveStartKey": _index_key(after)} if after else {}
        answer = self.client.query(
            TableName=self.table,
            IndexName=INDEX,
            KeyConditionExpression="#status = :pending AND placed_at <= :until",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues=to_item(
                {":pending": OrderStatus.PENDING, ":until": datetime.fromtimestamp(placed_until, UTC).isoformat()}
            ),
            Limit=limit,
            **start,
        )
        last = answer.get("LastEvaluatedKey")
        return [_order_key(item) for item in answer["Items"]], _order_key(last) if last else None

    def read(self, key: OrderKey) -> dict[str, Any] | None:
        """The item as it is now, which the index may not show yet; None if it is PENDING no more."""
        answer = self.client.get_item(TableName=self.table, Key=to_item({"order_id": key[0]}), ConsistentRead=True)
        item = answer.get("Item", {})
        return item if item.get("status") == {"S": OrderStatus.PENDING} else None


def _index_key(key: OrderKey) -> dict[str, Any]:
    return to_item({"order_id": key[0], "placed_at": key[1], "status": OrderStatus.PENDING})


def _order_key(item: Any) -> OrderKey:
    return item["order_id"]["S"], item["placed_at"]["S"]
