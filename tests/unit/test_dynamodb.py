"""Items of DynamoDB's low-level client, to and from plain values and objects."""

from typing import Any
from unittest.mock import Mock

import pytest
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from onecharge.orders.store import OrderStore
from onecharge.payments.payments_table import PaymentStore
from onecharge.runtime.checkpoints import Checkpoint, CheckpointStore
from onecharge.runtime.dynamodb import from_item, read_items, to_item

VALUES: list[Any] = ["a", "", -(10**15), True, [1, "a", {"deep": [2]}, None], {"attempts": 3, "none": {}}]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_stored_and_read_as_boto3_does(value: Any) -> None:
    """A boolean is no number, and each number is read as an int, however deep."""
    stored = to_item({"a": value})["a"]
    assert stored == TypeSerializer().serialize(value)
    assert from_item({"a": stored})["a"] == value == TypeDeserializer().deserialize(stored)
    assert type(from_item({"a": {"L": [{"N": "1"}]}})["a"][0]) is int


@pytest.mark.parametrize("stored", [{"N": "1.5"}, {"L": [{"N": "1.5"}]}, {"M": {"a": {"N": "1e-1"}}}])
def test_a_fraction_is_refused(stored: dict[str, Any]) -> None:
    """However deep: nothing of ours is one, and rounding it could change an amount."""
    with pytest.raises(ValueError, match="invalid literal"):
        from_item({"a": stored})
    with pytest.raises(TypeError):
        to_item({"a": [1.5]})


def test_items_are_read_consistently() -> None:
    """An eventually consistent read would miss what was just written."""
    client = Mock(**{"get_item.return_value": {}, "batch_get_item.return_value": {"Responses": {}}})
    PaymentStore(client, "t").read("ord_1")
    OrderStore(client, "t").find("ord_1")
    CheckpointStore(client, "t", type("Job", (Checkpoint,), {"job": "a"})).read()
    read_items(client, "t", [{"order_id": "ord_1"}])
    reads = [each.kwargs for each in client.get_item.mock_calls]
    reads += [each.kwargs["RequestItems"]["t"] for each in client.batch_get_item.mock_calls]
    assert [each.get("ConsistentRead") for each in reads] == [True] * 4
