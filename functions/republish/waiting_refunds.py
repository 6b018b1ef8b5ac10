"""The refunds that wait for the payment service: those that are PENDING."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from onecharge.contract.refunds import RefundStatus
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.waiting import WaitingIndex
from republish.waiting import Entry, Item, Key, Waiting, read_items

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
        entries = [
            Entry(
                {name: each[name] for name in ("order_id", "refund_id")},
                datetime.fromisoformat(each["requested_at"]).timestamp(),
            )
            for each in found
            if each["status"] == RefundStatus.PENDING
        ]
        return entries, last

    def read(self, entries: Sequence[Entry]) -> list[Item]:
        return read_items(self.client, self.table, [entry.key for entry in entries])

    def waiting(self, item: Item) -> Waiting | None:
        refund = StoredRefund.from_item(item)
        if refund.status is not RefundStatus.PENDING:
            return None
        event = refund.requested_event()
        return Waiting(event, event.data.requested_at.timestamp())
