"""Orders and refunds that wait for the payment service: from the index `waiting` to the event to publish again.

The index finds the candidates, the oldest first, and shows since when each of them waits. It is eventually consistent,
so an item whose next republication is due by it is then read consistently, a hundred with one request.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from onecharge.contract.events import Event
from onecharge.contract.refunds import RefundState
from onecharge.contract.states import OrderStatus
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder, waiting_since
from onecharge.orders.transitions import WAITING
from onecharge.orders.waiting import WaitingIndex
from onecharge.runtime.dynamodb import read_items

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

UNREADABLE = (KeyError, TypeError, ValueError)
"""The errors of an item, or of its entry in the index, that breaks the schema. It does not block the others."""
UNREADABLE_SINCE = 0
"""An entry that cannot be read is due and stuck in every round, so that its item is read: then it raises the alarm."""

Key = Mapping[str, str]
"""The key attributes of an item, or of an entry of the index."""
Item = Mapping[str, Any]
"""An item in DynamoDB's JSON."""


@dataclass(frozen=True)
class Entry:
    """What the index shows of an item. It may be outdated."""

    key: Key
    since: float | None
    """Since when it waits for the payment service, in epoch seconds; None if it waits for a person."""


@dataclass(frozen=True)
class Waiting:
    """An item that still waits: the event to publish again, and since when it waits, in epoch seconds."""

    event: Event
    since: float


@dataclass(frozen=True)
class Source:
    """One table whose items wait: `age` sorts its index, `since_of` reads an entry of it, `waiting` an item."""

    client: "DynamoDBClient"
    table: str
    key: Sequence[str]
    age: str
    since_of: Callable[[Mapping[str, Any]], datetime | None]
    """Since when an entry waits for the payment service; None if it waits for a person. Raises one of UNREADABLE."""
    waiting: Callable[[Item], Waiting | None]
    """Returns None if the item does not wait any more. Raises one of UNREADABLE if it cannot be an event."""

    def page(self, shard: str, *, until: float, after: Key | None, limit: int) -> tuple[list[Entry], Key | None]:
        """Returns up to `limit` entries of a shard that are as old as `until` (epoch seconds), the oldest first.

        Returns also the cursor of the next page, None at the end. Makes one request.
        """
        index = WaitingIndex(self.client, self.table, self.age)
        found, last = index.page(shard, until=until, after=after, limit=limit)
        return [self._entry(each) for each in found], last

    def _entry(self, found: Mapping[str, Any]) -> Entry:
        key = {name: found[name] for name in self.key}
        try:
            since = self.since_of(found)
        except UNREADABLE:
            return Entry(key, UNREADABLE_SINCE)
        return Entry(key, since.timestamp() if since else None)

    def read(self, entries: Sequence[Entry]) -> list[Item]:
        """Returns the items as they are now, which the index may not show yet, omitting any that are gone.

        Raises ReadsThrottled: the next run reads them.
        """
        return read_items(self.client, self.table, [entry.key for entry in entries])


def waiting_orders(client: "DynamoDBClient", table: str) -> Source:
    """The orders that the payment service ends by itself (onecharge.orders.transitions)."""
    return Source(client, table, ["order_id"], "placed_at", _order_waits_since, _waiting_order)


def _order_waits_since(found: Mapping[str, Any]) -> datetime | None:
    return waiting_since(found) if OrderStatus(found["status"]) in WAITING else None


def _waiting_order(item: Item) -> Waiting | None:
    order = StoredOrder.from_item(item)
    if order.status not in WAITING:
        return None
    # REQUIRES_ACTION asks again about the current attempt.
    return Waiting(order.event() or order.placed_event(), order.waiting_since.timestamp())


def waiting_refunds(client: "DynamoDBClient", table: str) -> Source:
    """The refunds that are PENDING."""
    return Source(client, table, ["order_id", "refund_id"], "requested_at", _refund_waits_since, _waiting_refund)


def _refund_waits_since(found: Mapping[str, Any]) -> datetime | None:
    is_pending = RefundState(found["status"]) is RefundState.PENDING
    return datetime.fromisoformat(found["requested_at"]) if is_pending else None


def _waiting_refund(item: Item) -> Waiting | None:
    refund = StoredRefund.from_item(item)
    if refund.status is not RefundState.PENDING:
        return None
    event = refund.requested_event()
    return Waiting(event, event.data.requested_at.timestamp())
