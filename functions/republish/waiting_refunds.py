"""The refunds that wait for the payment service: those that are PENDING."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from onecharge.contract.refunds import RefundStatus
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.waiting import WaitingIndex
from onecharge.runtime.dynamodb import read_items
from republish.waiting import UNREADABLE, UNREADABLE_SINCE, Entry, Item, Key, Waiting

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True)
class WaitingRefunds:
    """A source of republish (republish.waiting.Source)."""

    client: "DynamoDBClient"
    table: str

    def page(self, shard: str, *, until: float, after: Key | None, limit: int) -> tuple[list[Entry], Key | None]:
        index = WaitingIndex(self.client, self.table, "requested_at")
        found, last = index.page(shard, until=until, after=after, limit=limit)
        return [entry for each in found if (entry := _entry(each))], last

    def read(self, entries: Sequence[Entry]) -> list[Item]:
        return read_items(self.client, self.table, [entry.key for entry in entries])

    def waiting(self, item: Item) -> Waiting | None:
        refund = StoredRefund.from_item(item)
        if refund.status is not RefundStatus.PENDING:
            return None
        event = refund.requested_event()
        return Waiting(event, event.data.requested_at.timestamp())


def _entry(found: Mapping[str, Any]) -> Entry | None:
    """None for a refund that is in review."""
    key = {name: found[name] for name in ("order_id", "refund_id")}
    try:
        is_pending = RefundStatus(found["status"]) is RefundStatus.PENDING
        return Entry(key, datetime.fromisoformat(found["requested_at"]).timestamp()) if is_pending else None
    except UNREADABLE:
        return Entry(key, UNREADABLE_SINCE)
