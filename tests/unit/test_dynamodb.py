"""Items of DynamoDB's low-level client, to and from plain values and objects."""

from dataclasses import dataclass
from typing import Any

import pytest
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from onecharge.contract.states import OrderStatus
from onecharge.runtime.dynamodb import expression_values, from_item, object_of, set_expression, to_item

VALUES: dict[str, Any] = {
    "text": "a",
    "empty": "",
    "number": -(10**15),
    "yes": True,
    "list": [1, "a", {"deep": [2]}],
    "map": {"attempts": 3, "none": {}},
    "null": [None],
}
STORED_BY_OTHERS: dict[str, Any] = {
    "null": {"NULL": True},
    "deep": {"M": {"list": {"L": [{"BOOL": False}, {"NULL": True}, {"N": "3"}]}}},
}


@dataclass(frozen=True)
class Line:
    sku: str
    number: int = 1


@dataclass(frozen=True, kw_only=True)
class Row:
    status: OrderStatus
    ordered_by: str | None = None
    lines: tuple[Line, ...] = ()


def test_an_item_is_read_as_the_object_that_its_class_declares() -> None:
    """What another release stored and this one does not know is ignored; what is missing has its default."""
    item = to_item({"status": OrderStatus.PAID, "lines": [{"sku": "a", "number": 2}, {"sku": "b"}], "added_later": 1})
    read = object_of(Row, from_item(item))
    assert read == Row(status=OrderStatus.PAID, lines=(Line("a", 2), Line("b")))
    assert read.status is OrderStatus.PAID


@pytest.mark.parametrize(
    "values", [{}, {"status": "PAID?"}, {"status": "PAID", "ordered_by": 7}, {"status": "PAID", "lines": [{}]}]
)
def test_an_item_that_its_class_does_not_allow_is_refused(values: dict[str, Any]) -> None:
    """A missing attribute, an unknown state, another type; also within another value."""
    with pytest.raises(ValueError, match="validation error"):
        object_of(Row, values)


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


@pytest.mark.parametrize("name", STORED_BY_OTHERS)
def test_what_others_have_stored_is_read_as_boto3_reads_it(name: str) -> None:
    """Every type that DynamoDB has."""
    stored = STORED_BY_OTHERS[name]
    assert from_item({"a": stored})["a"] == TypeDeserializer().deserialize(stored)


@pytest.mark.parametrize("stored", [{"N": "1.5"}, {"L": [{"N": "1.5"}]}, {"M": {"a": {"N": "1e-1"}}}])
def test_a_fraction_is_refused(stored: dict[str, Any]) -> None:
    """However deep: nothing of ours is one, and rounding it could change an amount."""
    with pytest.raises(ValueError, match="invalid literal"):
        from_item({"a": stored})


@pytest.mark.parametrize("value", [1.5, object(), [1.5], {"a": 1.5}])
def test_a_value_without_a_type_of_dynamodbs_is_refused(value: object) -> None:
    """A float is none: it would be rounded."""
    with pytest.raises(TypeError):
        to_item({"a": value})


def test_none_is_not_stored() -> None:
    """In an item and in an expression: an attribute without a value is absent."""
    assert to_item({"a": None, "b": 0}) == {"b": {"N": "0"}}
    assert expression_values(a=None, now=1) == {":now": {"N": "1"}}


def test_an_update_expression_sets_each_attribute() -> None:
    """In the order in which they are given."""
    assert set_expression({"#state": ":state", "revision": "revision + :one"}) == (
        "SET #state = :state, revision = revision + :one"
    )
