"""Several items of a table with one request: BatchGetItem."""

from collections.abc import Iterable, Mapping
from itertools import batched
from typing import TYPE_CHECKING, Any

from onecharge.runtime.dynamodb import to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_KEYS_MAX = 100
"""Keys of one BatchGetItem request, at the most (Amazon DynamoDB API Reference)."""
_READS_MAX = 10
"""Requests for one hundred keys: DynamoDB may leave some out of each answer, as when it throttles."""


class ReadsThrottled(Exception):
    """DynamoDB has left items out of its answers, again and again. Retrying later is safe."""


def read_items(client: "DynamoDBClient", table: str, keys: Iterable[Mapping[str, str]]) -> list[Mapping[str, Any]]:
    """The items of these keys in DynamoDB's JSON, strongly consistent, in any order, without those that are gone.

    Raises ReadsThrottled.
    """
    items: list[Mapping[str, Any]] = []
    for batch in batched(keys, _KEYS_MAX, strict=False):
        wanted: Any = {table: {"Keys": [to_item(key) for key in batch], "ConsistentRead": True}}
        for _ in range(_READS_MAX):
            answer = client.batch_get_item(RequestItems=wanted)
            items += answer["Responses"].get(table, [])
            wanted = answer.get("UnprocessedKeys")
            if not wanted:
                break
        else:
            raise ReadsThrottled
    return items
