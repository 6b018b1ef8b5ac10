"""The StripeEvents table: the ids of the events that were processed, so that a duplicate costs one read."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onecharge.runtime.dynamodb import to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

RETENTION_SECONDS = 30 * 24 * 3600
"""How long an id is kept. Stripe retries for three days, and an event can be resent by hand for as long as Stripe keeps
it (Stripe documentation, "List all events": 30 days)."""


@dataclass(frozen=True)
class ProcessedEvents:
    """The table through botocore's client. Every method makes exactly one request."""

    client: "DynamoDBClient"
    table: str

    def contains(self, event_id: str) -> bool:
        """Whether the event was processed before."""
        key = to_item({"event_id": event_id})
        return "Item" in self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)

    def record(self, event_id: str, *, now: int) -> None:
        """Remember that the event was processed."""
        item = to_item({"event_id": event_id, "expires_at": now + RETENTION_SECONDS})
        self.client.put_item(TableName=self.table, Item=item)
