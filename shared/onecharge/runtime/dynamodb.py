"""Items as DynamoDB's low-level client and its streams have them, to and from plain Python values."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

_serializer = TypeSerializer()
_deserializer = TypeDeserializer()


def to_item(values: Mapping[str, Any]) -> dict[str, Any]:
    """`{"attempt": 1}` as `{"attempt": {"N": "1"}}`; values that are None are left out."""
    return {name: _serialized(value) for name, value in values.items() if value is not None}


def from_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """`{"attempt": {"N": "1"}}` as `{"attempt": 1}`; every number is an int, since no fraction is stored."""
    return {name: _deserialized(value) for name, value in item.items()}


def set_expression(changes: Mapping[str, str]) -> str:
    """The update expression that sets each attribute to its value: `{"attempt": ":n"}` as `SET attempt = :n`."""
    return "SET " + ", ".join(f"{name} = {value}" for name, value in changes.items())


def expression_values(**values: Any) -> dict[str, Any]:
    """`now=1` as `{":now": {"N": "1"}}`; values that are None are left out."""
    return {f":{name}": value for name, value in to_item(values).items()}


# Strings and integers, which are nearly everything, skip boto3's slower search for the type.


def _serialized(value: Any) -> Any:
    if isinstance(value, str):
        return {"S": str(value)}
    if type(value) is int:
        return {"N": str(value)}
    return _serializer.serialize(value)


def _deserialized(value: Any) -> Any:
    if "S" in value:
        return value["S"]
    if "N" in value:
        return int(value["N"])
    return _plain(_deserializer.deserialize(value))


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return {name: _plain(element) for name, element in value.items()}
    return value
