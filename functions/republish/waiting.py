"""What waits for the payment service: orders by their status, and when one of them is due to be published again.

The index by_status finds the candidates, the oldest first. An index is eventually consistent, so each item is then
read consistently.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from onecharge.contract.events import Event
from onecharge.contract.states import OrderStatus
from onecharge.orders.events import ORDER_EVENTS
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStore
from onecharge.runtime.dynamodb import expression_values, from_item, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

INDEX = "by_status"

DAY_SECONDS = 24 * 3600

FIRST_WAIT_SECONDS = 15 * 60
"""An order is paid within seconds; one that has waited this long is published again. Not before the payment service's
REEMIT_AFTER_SECONDS (payments/delivery.py): an earlier duplicate makes a final row emit nothing."""

Key = Mapping[str, str]
"""The key attributes of an item and of the index."""


def republications_due(waiting_seconds: float) -> int:
    """How often an item that has waited this long is to have been republished.

    After 15 minutes, again whenever that has doubled, and daily from the first day on. In an outage of Stripe each
    order's message is still in its queue, and every duplicate is one more request to Stripe.
    """
    if waiting_seconds < FIRST_WAIT_SECONDS:
        return 0
    doubled = int(min(waiting_seconds, DAY_SECONDS - 1) // FIRST_WAIT_SECONDS).bit_length()
    return doubled + int(waiting_seconds // DAY_SECONDS)


@dataclass(frozen=True)
class Waiting:
    """An item that still waits: the event to publish again, and since when it waits, in epoch seconds."""

    event: Event
    since: float


class Source(Protocol):
    """One kind of items that wait. Every method makes exactly one request."""

    def page(self, *, until: float, after: Key | None, limit: int) -> tuple[list[Key], Key | None]:
        """The keys of at most `limit` items that are as old as `until` (epoch seconds), the oldest first.

        Returns also the cursor of the next page, None at the end.
        """

    def read(self, key: Key) -> Waiting | None:
        """The item as it is now, which the index may not show yet; None if it does not wait any more.

        Raises ValueError if it cannot be an event.
        """


@dataclass(frozen=True)
class WaitingOrders:
    """The orders of one status that waits (onecharge.orders.transitions)."""

    client: "DynamoDBClient"
    table: str
    status: OrderStatus

    def page(self, *, until: float, after: Key | None, limit: int) -> tuple[list[Key], Key | None]:
        return StatusIndex(self.client, self.table, self.status, "placed_at").page(until, after, limit)

    def read(self, key: Key) -> Waiting | None:
        order = OrderStore(self.client, self.table).find(key["order_id"])
        if order is None or order.status is not self.status:
            return None
        # REQUIRES_ACTION asks again about the present attempt.
        event_of = ORDER_EVENTS.get(self.status, StoredOrder.placed_event)
        return Waiting(event_of(order), order.waiting_since.timestamp())


@dataclass(frozen=True)
class StatusIndex:
    """The items of one status in the index by_status; `age` is the attribute that it sorts by."""

    client: "DynamoDBClient"
    table: str
    status: str
    age: str

    def page(self, until: float, after: Key | None, limit: int) -> tuple[list[Key], Key | None]:
        """As in Source.page."""
        start: dict[str, Any] = {"ExclusiveStartKey": to_item(after)} if after else {}
        answer = self.client.query(
            TableName=self.table,
            IndexName=INDEX,
            KeyConditionExpression="#status = :status AND #age <= :until",
            ExpressionAttributeNames={"#status": "status", "#age": self.age},
            ExpressionAttributeValues=expression_values(
                status=self.status, until=datetime.fromtimestamp(until, UTC).isoformat()
            ),
            Limit=limit,
            **start,
        )
        last = answer.get("LastEvaluatedKey")
        return [from_item(item) for item in answer["Items"]], from_item(last) if last else None
