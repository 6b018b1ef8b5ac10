"""Where the last run stopped: one item of the Reconciliation table."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from onecharge.runtime.dynamodb import from_item, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_KEY = {"name": "reconcile"}


@dataclass(frozen=True)
class FailedEvent:
    """An event that could not be handled: Stripe still has it, and is asked for it again."""

    event_id: str
    attempts: int = 1


@dataclass(frozen=True)
class Checkpoint:
    """How far events and rows have come. Times are whole epoch seconds."""

    since: int
    """Stripe's events before this time have been read."""
    until: int
    """The events from `since` up to before this time are being read, the newest first; equal to it: none are."""
    round_started_at: int
    """When the present round through the unfinished rows began."""
    round_completed_at: int
    """When the last round was completed."""
    after_event: str | None = None
    """The last event that was read."""
    failed: tuple[FailedEvent, ...] = ()
    """Events that were read and could not be handled, the longest untried first."""
    shard: int = 0
    """The shard of the index that the present round is in."""
    after_row: dict[str, Any] | None = None
    """The index key of the shard's last row that was visited; None to begin at its oldest."""
    version: int = 0

    @property
    def is_between_rounds(self) -> bool:
        """Whether the last round is completed, and no row of the next was visited."""
        return self.shard == 0 and self.after_row is None

    @classmethod
    def first(cls, *, since: int, now: int) -> Self:
        """Before the first run."""
        return cls(since=since, until=since, round_started_at=now, round_completed_at=now)


class ConcurrentRun(Exception):
    """Another run has written the checkpoint since it was read: this one leaves the rest to it."""


@dataclass(frozen=True)
class CheckpointStore:
    """The item through boto3's client."""

    client: "DynamoDBClient"
    table: str

    def read(self) -> Checkpoint | None:
        """Where the last run stopped; None before the first."""
        answer = self.client.get_item(TableName=self.table, Key=to_item(_KEY), ConsistentRead=True)
        if "Item" not in answer:
            return None
        values = from_item(answer["Item"])
        del values["name"]
        return Checkpoint(**values | {"failed": tuple(FailedEvent(**each) for each in values["failed"])})

    def write(self, checkpoint: Checkpoint) -> Checkpoint:
        """Write it, if nobody else has since it was read. Raises ConcurrentRun."""
        newer = replace(checkpoint, version=checkpoint.version + 1)
        item = {**_KEY, **vars(newer), "failed": [vars(each) for each in newer.failed]}
        try:
            self.client.put_item(
                TableName=self.table,
                Item=to_item(item),
                ConditionExpression="attribute_not_exists(#version) OR #version = :read",
                ExpressionAttributeNames={"#version": "version"},
                ExpressionAttributeValues=to_item({":read": checkpoint.version}),
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            raise ConcurrentRun from refused
        return newer
