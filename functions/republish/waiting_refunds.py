"""The refunds that wait for the payment service: those that are PENDING."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecharge.contract.refunds import RefundStatus
from onecharge.orders.refunds import StoredRefund
from onecharge.runtime.dynamodb import to_item
from republish.waiting import Key, StatusIndex, Waiting

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True)
class WaitingRefunds:
    """A source of republish (republish.waiting.Source)."""

    client: "DynamoDBClient"
    table: str

    def page(self, *, until: float, after: Key | None, limit: int) -> tuple[list[Key], Key | None]:
        return StatusIndex(self.client, self.table, RefundStatus.PENDING, "requested_at").page(until, after, limit)

    def read(self, key: Key) -> Waiting | None:
        item_key = to_item({name: key[name] for name in ("order_id", "refund_id")})
        answer = self.client.get_item(TableName=self.table, Key=item_key, ConsistentRead=True)
        refund = StoredRefund.from_item(answer["Item"]) if "Item" in answer else None
        if refund is None or refund.status is not RefundStatus.PENDING:
            return None
        event = refund.requested_event()
        return Waiting(event, event.data.requested_at.timestamp())
