"""What the stores of both services share: DynamoDB's items and Python's objects, batches of reads, index shards."""

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import batched
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_KEYS_MAX = 100
"""Keys of one BatchGetItem request, at most (Amazon DynamoDB API Reference)."""
_READS_MAX = 10
"""Requests for one hundred keys: DynamoDB may leave some out of each answer, as when it throttles."""

SHARDS = 8
"""The partitions of each sparse index; an item's shard follows from its order's id, permanently.

A partition of an index takes 1,000 writes a second, and holds back the writes to its table beyond that (Amazon DynamoDB
Developer Guide, "Using write sharding to distribute workloads evenly", "GSI back-pressure"): eight carry 4,000 orders a
second. To raise it, first deploy a release that reads the new number and writes by the old one."""

ALL_SHARDS = tuple(str(number) for number in range(SHARDS))
"""What a reader of an index reads, all of them."""


def shard_of(order_id: str) -> str:
    """The shard of everything that belongs to the order."""
    return str(int(hashlib.sha256(order_id.encode()).hexdigest(), 16) % SHARDS)


def to_item(values: Mapping[str, Any]) -> dict[str, Any]:
    """`{"attempt": 1}` as `{"attempt": {"N": "1"}}`; None values are omitted."""
    return {name: _serialized(value) for name, value in values.items() if value is not None}


def from_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """`{"attempt": {"N": "1"}}` as `{"attempt": 1}`; every number is an int. Raises ValueError for a fraction."""
    return {name: _deserialized(value) for name, value in item.items()}


def object_of[T](class_: type[T], values: Mapping[str, Any]) -> T:
    """An item's values as an object of the dataclass. Attributes that it lacks are ignored. Raises ValueError."""
    adapter: TypeAdapter[T] = _adapter_of(class_)  # type: ignore[arg-type]  # A class is hashable.
    return adapter.validate_python(values)


_adapter_of = cache(TypeAdapter)
"""Compiles the validator of a class once, when its first object is read: it takes milliseconds."""


def set_expression(changes: Mapping[str, str]) -> str:
    """The update expression that sets each attribute to its value: `{"attempt": ":n"}` as `SET attempt = :n`."""
    return "SET " + ", ".join(f"{name} = {value}" for name, value in changes.items())


def expression_values(**values: Any) -> dict[str, Any]:
    """`now=1` as `{":now": {"N": "1"}}`; None values are omitted."""
    return {f":{name}": value for name, value in to_item(values).items()}


class ReadsThrottled(Exception):
    """DynamoDB has left items out of its answers, again and again. Retrying later is safe."""


def read_items(client: "DynamoDBClient", table: str, keys: Iterable[Mapping[str, str]]) -> list[Mapping[str, Any]]:
    """Return the items of these keys in DynamoDB's JSON, strongly consistent, in any order, omitting any that are gone.

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


def _serialized(value: Any) -> dict[str, Any]:
    """The value with its type (Amazon DynamoDB API reference, "AttributeValue"). Raises TypeError."""
    match value:
        case str():
            return {"S": str(value)}
        case bool():
            return {"BOOL": value}
        case int():
            return {"N": str(value)}
        case None:
            return {"NULL": True}
        case Mapping():
            return {"M": {name: _serialized(each) for name, each in value.items()}}
        case list() | tuple():
            return {"L": [_serialized(each) for each in value]}
        case _:
            raise TypeError(f"{type(value).__name__} cannot be stored as a DynamoDB attribute")


def _deserialized(value: Mapping[str, Any]) -> Any:
    """The plain value; ValueError if it is a fraction."""
    [(type_, content)] = value.items()
    match type_:
        case "N":
            return int(content)
        case "NULL":
            return None
        case "M":
            return {name: _deserialized(each) for name, each in content.items()}
        case "L":
            return [_deserialized(each) for each in content]
        case _:  # S, BOOL; nothing here stores sets or bytes.
            return content
