"""Where the last run stopped: one item of the Republication table."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from onecharge.dynamodb import from_item, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_KEY = {"name": "republish_orders"}


@dataclass(frozen=True)
class Progress:
    """How far the present round through the pending orders has come. Times are whole epoch seconds."""

    round_at: int
    """When the round began: whether an order is due is judged by this time, however many runs the round takes."""
    round_before_at: int = 0
    """When the round before it began; 0 if there was none."""
    after_order_id: str | None = None
    after_placed_at: str | None = None
    """The last order that was looked at; None when the round is at its end, and the next run begins another."""

    @property
    def after(self) -> tuple[str, str] | None:
        """The last order that was looked at, as the index has it."""
        return (self.after_order_id, self.after_placed_at) if self.after_order_id and self.after_placed_at else None


@dataclass(frozen=True)
class ProgressStore:
    """The item through boto3's client. Two runs at once publish twice, which harms nobody: nothing is conditional."""

    client: "DynamoDBClient"
    table: str

    def read(self) -> Progress | None:
        """Where the last run stopped; None before the first."""
        answer = self.client.get_item(TableName=self.table, Key=to_item(_KEY), ConsistentRead=True)
        if "Item" not in answer:
            return None
        values = from_item(answer["Item"])
        del values["name"]
        return Progress(**values)

    def write(self, progress: Progress) -> None:
        self.client.put_item(TableName=self.table, Item=to_item({**_KEY, **asdict(progress)}))
