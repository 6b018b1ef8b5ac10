"""Items as DynamoDB's low-level client and its streams have them, to and from plain Python values."""

from collections.abc import Mapping
from typing import Any


def to_item(values: Mapping[str, Any]) -> dict[str, Any]:
    """`{"attempt": 1}` as `{"attempt": {"N": "1"}}`; values that are None are left out."""
    return {name: _serialized(value) for name, value in values.items() if value is not None}


def from_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """`{"attempt": {"N": "1"}}` as `{"attempt": 1}`; every number is an int. Raises ValueError for a fraction."""
    return {name: _deserialized(value) for name, value in item.items()}


def set_expression(changes: Mapping[str, str]) -> str:
    """The update expression that sets each attribute to its value: `{"attempt": ":n"}` as `SET attempt = :n`."""
    return "SET " + ", ".join(f"{name} = {value}" for name, value in changes.items())


def expression_values(**values: Any) -> dict[str, Any]:
    """`now=1` as `{":now": {"N": "1"}}`; values that are None are left out."""
    return {f":{name}": value for name, value in to_item(values).items()}


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
            raise TypeError(f"{type(value).__name__} is no attribute's type")


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
        case "NS":
            return {int(each) for each in content}
        case "SS" | "BS":
            return set(content)
        case _:  # S, BOOL, B
            return content
