"""RepeatWindowSeconds: the same purchase under another key is refused, unless the customer wants it once more."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.orders_api import NOW, Client, order

WINDOW_SECONDS = 600


@pytest.fixture
def guarded(client: Client) -> Client:
    client.refuse_repeats(WINDOW_SECONDS)
    return client


def test_without_the_parameter_two_keys_are_two_orders(client: Client) -> None:
    """As promised: one key is one purchase."""
    assert [client.post(order(), key=key)[0] for key in ("a", "b")] == [202, 202]
    assert len(client.stored()) == 2


def test_the_same_purchase_under_another_key_is_refused(guarded: Client) -> None:
    """409 that names the earlier order and its status; nothing is stored."""
    _, first, _ = guarded.post(order(), key="a")
    guarded.set_status(first["order_id"], "PAID")
    status, problem, _ = guarded.post(order(), key="b")
    assert (status, problem["type"]) == (409, "urn:onecharge:problem:probable-duplicate")
    assert (problem["order_id"], problem["order_status"], problem["status"]) == (first["order_id"], "PAID", 409)
    assert len(guarded.stored()) == 1


def test_who_wants_it_once_more_says_so(guarded: Client) -> None:
    """With the key that was refused; and a retry without the word finds that order."""
    guarded.post(order(), key="a")
    assert guarded.post(order(), key="b")[0] == 409
    status, second, _ = guarded.post(order(again=True), key="b")
    assert status == 202
    assert guarded.post(order(), key="b")[1]["order_id"] == second["order_id"]
    assert len(guarded.stored()) == 2


def test_a_retry_finds_its_order(guarded: Client) -> None:
    """Within the window and after it, even if the purchase is marked by a later order."""
    _, first, _ = guarded.post(order(), key="a")
    assert guarded.post(order(), key="a")[1] == first
    guarded.now = NOW + timedelta(seconds=WINDOW_SECONDS)
    assert guarded.post(order(), key="b")[0] == 202
    assert guarded.post(order(), key="a")[1] == first


def test_the_order_that_says_again_is_the_newest(guarded: Client) -> None:
    """The window begins anew: what follows is a repeat of that one."""
    guarded.post(order(), key="a")
    guarded.now = NOW + timedelta(seconds=WINDOW_SECONDS - 1)
    _, second, _ = guarded.post(order(again=True), key="b")
    guarded.now = NOW + timedelta(seconds=WINDOW_SECONDS + 1)
    assert guarded.post(order(), key="c")[1]["order_id"] == second["order_id"]
    assert len(guarded.stored()) == 2


def test_an_order_that_was_lost_is_placed_again(guarded: Client) -> None:
    """Orders is restored, and State is not: the mark is of this order itself."""
    _, first, _ = guarded.post(order(), key="a")
    guarded.dynamodb.delete_item(TableName=guarded.table, Key={"order_id": {"S": first["order_id"]}})
    assert guarded.post(order(), key="a")[0] == 202


@pytest.mark.parametrize(("seconds", "status"), [(WINDOW_SECONDS - 1, 409), (WINDOW_SECONDS, 202)])
def test_the_window_ends(guarded: Client, seconds: int, status: int) -> None:
    guarded.post(order(), key="a")
    guarded.now = NOW + timedelta(seconds=seconds)
    assert guarded.post(order(), key="b")[0] == status


@pytest.mark.parametrize("lines", [[{"sku": "mug", "quantity": 3}], [{"sku": "mug", "quantity": 2}] * 2])
def test_other_lines_are_another_purchase(guarded: Client, lines: list[Any]) -> None:
    guarded.post(order(), key="a")
    assert guarded.post(order(items=lines), key="b")[0] == 202


def test_another_customer_is_another_purchase(guarded: Client) -> None:
    guarded.post(order(), key="a")
    guarded.customer = "cus_2"
    assert guarded.post(order(), key="b")[0] == 202


def test_a_key_that_was_used_for_another_body_marks_nothing(guarded: Client) -> None:
    """422 says to use a new key, and with a new key the order is stored."""
    guarded.post(order(), key="a")
    other = order(items=[{"sku": "mug", "quantity": 3}])
    assert guarded.post(other, key="a")[0] == 422
    assert guarded.post(other, key="b")[0] == 202


def test_of_two_at_once_one_is_stored(guarded: Client) -> None:
    """The other one's transaction fails as a whole."""
    at_once: list[int] = []
    guarded.overtaken.meanwhile.append(lambda: at_once.append(guarded.post(order(), key="b")[0]))
    assert (guarded.post(order(), key="a")[0], at_once) == (409, [202])
    assert len(guarded.stored()) == 1
