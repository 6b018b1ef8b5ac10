"""What waits for the payment service: orders and refunds by their status, and when one of them is due.

Each kind is a query on an index by status, oldest first; the items themselves are read consistently.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from onecharge.contract.states import OrderStatus, RefundStatus
from onecharge.orders.items import cancel_requested, order_placed, refund_requested, waiting_since
from onecharge.runtime.dynamodb import expression_values, from_item, to_item
from onecharge.runtime.topics import OrderServiceEvent

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

INDEX = "by_status"

DAY_SECONDS = 24 * 3600

FIRST_WAIT_SECONDS = 15 * 60
"""An order is paid within seconds: one that has waited for so long is published again."""

Key = Mapping[str, str]
"""The key attributes of an item and of the index."""


def republications_due(waiting_seconds: float) -> int:
    """How often an item that has waited for so long is to have been republished.

    After 15 minutes, again whenever that has doubled, and from the first day on daily: in an outage of Stripe's nothing
    was lost, each order's message is still in its queue, and every further one is one more request to Stripe.
    """
    if waiting_seconds < FIRST_WAIT_SECONDS:
        return 0
    doubled = int(min(waiting_seconds, DAY_SECONDS - 1) // FIRST_WAIT_SECONDS).bit_length()
    return doubled + int(waiting_seconds // DAY_SECONDS)


@dataclass(frozen=True)
class Waiting:
    """An item that still waits: the event that asks about it, and since when it waits, in epoch seconds."""

    event: OrderServiceEvent
    since: float


class Source(Protocol):
    """One kind of items that wait. Every method makes exactly one request."""

    def page(self, *, until: float, after: Key | None, limit: int) -> tuple[list[Key], Key | None]:
        """So many that are as old as that (epoch seconds), the oldest first; and where to go on, None at the end."""

    def read(self, key: Key) -> Waiting | None:
        """The item as it is now, which the index may not show yet; None if it does not wait any more.

        Raises KeyError, TypeError or ValueError if it can be no event.
        """


@dataclass(frozen=True)
class WaitingOrders:
    """The orders of one status: PENDING and REQUIRES_ACTION wait for an outcome, CANCELING for its end."""

    client: "DynamoDBClient"
    table: str
    status: OrderStatus

    def page(self, *, until: float, after: Key | None, limit: int) -> tuple[list[Key], Key | None]:
        return _page(_Index(self.client, self.table, self.status, "placed_at"), until, after, limit)

    def read(self, key: Key) -> Waiting | None:
        order = _read(self.client, self.table, {"order_id": key["order_id"]})
        if order.get("status") != self.status:
            return None
        event = cancel_requested(order) if self.status is OrderStatus.CANCELING else order_placed(order)
        return Waiting(event, waiting_since(order).timestamp())


@dataclass(frozen=True)
class WaitingRefunds:
    """The refunds that are PENDING."""

    client: "DynamoDBClient"
    table: str

    def page(self, *, until: float, after: Key | None, limit: int) -> tuple[list[Key], Key | None]:
        return _page(_Index(self.client, self.table, RefundStatus.PENDING, "requested_at"), until, after, limit)

    def read(self, key: Key) -> Waiting | None:
        refund = _read(self.client, self.table, {name: key[name] for name in ("order_id", "refund_id")})
        if refund.get("status") != RefundStatus.PENDING:
            return None
        event = refund_requested(refund)
        return Waiting(event, event.data.requested_at.timestamp())


@dataclass(frozen=True)
class _Index:
    """The items of one status, in the order of their age."""

    client: "DynamoDBClient"
    table: str
    status: str
    age: str


def _page(index: _Index, until: float, after: Key | None, limit: int) -> tuple[list[Key], Key | None]:
    start: dict[str, Any] = {"ExclusiveStartKey": to_item(after)} if after else {}
    answer = index.client.query(
        TableName=index.table,
        IndexName=INDEX,
        KeyConditionExpression="#status = :status AND #age <= :until",
        ExpressionAttributeNames={"#status": "status", "#age": index.age},
        ExpressionAttributeValues=expression_values(
            status=index.status, until=datetime.fromtimestamp(until, UTC).isoformat()
        ),
        Limit=limit,
        **start,
    )
    last = answer.get("LastEvaluatedKey")
    return [from_item(item) for item in answer["Items"]], from_item(last) if last else None


def _read(client: "DynamoDBClient", table: str, key: Key) -> dict[str, Any]:
    answer = client.get_item(TableName=table, Key=to_item(key), ConsistentRead=True)
    return from_item(answer["Item"]) if "Item" in answer else {}
