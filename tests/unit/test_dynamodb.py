"""Items of DynamoDB's low-level client, to and from plain values."""

from typing import Any

import pytest
from boto3.dynamodb.types import TypeSerializer

from onecharge.contract.states import OrderStatus
from onecharge.runtime.dynamodb import expression_values, from_item, set_expression, to_item

VALUES: dict[str, Any] = {
    "text": "a",
    "empty": "",
    "number": -(10**15),
    "yes": True,
    "list": [1, "a", {"deep": [2]}],
    "map": {"attempts": 3, "none": {}},
}


def test_values_are_read_as_they_were_written() -> None:
    """Numbers as ints, however deep."""
    read = from_item(to_item(VALUES))
    assert read == VALUES
    assert type(read["map"]["attempts"]) is int


@pytest.mark.parametrize("name", VALUES)
def test_an_attribute_has_the_type_that_boto3_gives_it(name: str) -> None:
    """A boolean is no number, and text of an enum is its value."""
    assert to_item({"a": VALUES[name]})["a"] == TypeSerializer().serialize(VALUES[name])
    assert to_item({"a": OrderStatus.PAID}) == {"a": {"S": "PAID"}}


def test_none_is_not_stored() -> None:
    """In an item and in an expression: an attribute without a value is absent."""
    assert to_item({"a": None, "b": 0}) == {"b": {"N": "0"}}
    assert expression_values(a=None, now=1) == {":now": {"N": "1"}}


def test_an_update_expression_sets_each_attribute() -> None:
    """In the order in which they are given."""
    assert set_expression({"#state": ":state", "revision": "revision + :one"}) == (
        "SET #state = :state, revision = revision + :one"
    )
