"""Where the last run stopped: one item of the Republication table."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from onecharge.runtime.dynamodb import from_item, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_KEY = {"name": "republish"}


@dataclass(frozen=True)
class Checkpoint:
    """How far the present round through all that waits has come. Times are whole epoch seconds."""

    round_at: int
    """When the round began: whether an item is due is judged by this time, however many runs the round takes."""
    round_before_at: int = 0
    """When the round before it began; 0 if there was none."""
    source: int | None = 0
    """The source that is being read, by its number; None once all have been, and the next run begins a round."""
    after: Mapping[str, str] | None = None
    """The last key of that source that was read; None at its beginning."""


@dataclass(frozen=True)
class CheckpointStore:
    """The item through boto3's client. Two runs at once publish duplicates, which are harmless: no condition."""

    client: "DynamoDBClient"
    table: str

    def read(self) -> Checkpoint | None:
        """Where the last run stopped; None before the first."""
        answer = self.client.get_item(TableName=self.table, Key=to_item(_KEY), ConsistentRead=True)
        if "Item" not in answer:
            return None
        values = from_item(answer["Item"])
        del values["name"]
        return Checkpoint(**{"source": None, **values})

    def write(self, checkpoint: Checkpoint) -> None:
        self.client.put_item(TableName=self.table, Item=to_item({**_KEY, **asdict(checkpoint)}))
