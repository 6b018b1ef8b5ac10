"""Remembers where a scheduled job stopped, so that its next run continues there: one item in its State table."""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from onecharge.runtime.dynamodb import expression_values, from_item, object_of, to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What one job remembers between two runs; a subclass adds its fields.

    A field that is None is not stored, so None has to be its default.
    """

    job: ClassVar[str]
    """The name of the item."""

    version: int = 0
    """How often it has been written; 0 before the first time."""


class ConcurrentRun(Exception):
    """Another run has written the checkpoint since this one read it. The remaining work is left to that run."""


class CheckpointStore[C: Checkpoint]:
    """The checkpoint of one job through boto3's client. Methods raise botocore's errors."""

    def __init__(self, client: "DynamoDBClient", table: str, checkpoint: type[C]) -> None:
        self._client = client
        self._table = table
        self._key = {"name": checkpoint.job}
        self._checkpoint = checkpoint

    def read(self) -> C | None:
        """Read it consistently; None before it was first written. Attributes that the class lacks are ignored."""
        response = self._client.get_item(TableName=self._table, Key=to_item(self._key), ConsistentRead=True)
        return object_of(self._checkpoint, from_item(response["Item"])) if "Item" in response else None

    def write(self, checkpoint: C) -> C:
        """Write it with the next version, and return that. Raises ConcurrentRun if the stored version differs."""
        written = replace(checkpoint, version=checkpoint.version + 1)
        try:
            self._client.put_item(
                TableName=self._table,
                Item=to_item({**self._key, **asdict(written)}),
                ConditionExpression="attribute_not_exists(#version) OR #version = :read",
                ExpressionAttributeNames={"#version": "version"},
                ExpressionAttributeValues=expression_values(read=checkpoint.version),
            )
        except self._client.exceptions.ConditionalCheckFailedException as refused:
            raise ConcurrentRun from refused
        return written
