"""The sparse index `waiting` has the orders and refunds that wait: store.py and refund_store.py decide."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from onecharge.runtime.dynamodb import ALL_SHARDS, expression_values, from_item, to_item
from onecharge.runtime.paging import paged

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

INDEX = "waiting"


@dataclass(frozen=True)
class WaitingIndex:
    """The index of one table; `since` is the attribute that it sorts by: since when an item waits."""

    client: "DynamoDBClient"
    table: str
    since: str

    def page(
        self, shard: str, *, until: float, after: Mapping[str, str] | None, limit: int
    ) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """Up to `limit` entries of a shard that wait since `until` (epoch seconds), the oldest first; and a cursor.

        The index is eventually consistent: an entry may have a status that its item has no more.
        """
        start: dict[str, Any] = {"ExclusiveStartKey": to_item(after)} if after else {}
        answer = self.client.query(
            TableName=self.table,
            IndexName=INDEX,
            KeyConditionExpression="waiting_shard = :shard AND #since <= :until",
            ExpressionAttributeNames={"#since": self.since},
            ExpressionAttributeValues=expression_values(
                shard=shard, until=datetime.fromtimestamp(until, UTC).isoformat()
            ),
            Limit=limit,
            **start,
        )
        last = answer.get("LastEvaluatedKey")
        return [from_item(item) for item in answer["Items"]], from_item(last) if last else None

    def entries(self, *, until: float) -> Iterator[dict[str, Any]]:
        """Yields the entries of all shards that wait since `until` or longer."""
        for found, _ in paged(ALL_SHARDS, partial(self.page, until=until, limit=100)):
            yield from found

    def since_of(self, shown: Mapping[str, Any]) -> float:
        """Returns since when an entry or an item waits, in epoch seconds. Raises ValueError if it is no time."""
        return datetime.fromisoformat(shown[self.since]).timestamp()
