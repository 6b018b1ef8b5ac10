"""Where the last run stopped: one item of the Reconciliation table."""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from onecharge.dynamodb import from_item, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_KEY = {"name": "reconcile_charges"}


@dataclass(frozen=True)
class Progress:
    """How far both directions have come. Times are whole epoch seconds."""

    since: int
    """Stripe's events before this time have been read."""
    until: int
    """The events from `since` up to before this time are being read, the newest first; equal to it: none are."""
    after_event: str | None = None
    """The last of them that was read."""
    after_order_id: str | None = None
    """The last row that was held against Stripe; None to begin again at the table's start."""
    after_attempt: int | None = None
    version: int = 0


class AnotherRun(Exception):
    """Another run has gone on from the same place: this one leaves the rest to it."""


@dataclass(frozen=True)
class ProgressStore:
    """The item through boto3's client."""

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

    def write(self, progress: Progress) -> Progress:
        """Keep it, if nobody else has kept anything since it was read. Raises AnotherRun."""
        newer = replace(progress, version=progress.version + 1)
        try:
            self.client.put_item(
                TableName=self.table,
                Item=to_item({**_KEY, **asdict(newer)}),
                ConditionExpression="attribute_not_exists(#version) OR #version = :read",
                ExpressionAttributeNames={"#version": "version"},
                ExpressionAttributeValues=to_item({":read": progress.version}),
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            raise AnotherRun from refused
        return newer
