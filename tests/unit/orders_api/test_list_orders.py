"""GET /orders: a customer's orders, page by page."""

import pytest

from onecharge.contract.events import ATTEMPTS_MAX
from testing.orders_api import Client


def test_a_list_leaves_out_an_order_that_is_unreadable(client: Client) -> None:
    """For example attempt 101 of a restored table: the others are shown, and an alarm names it."""
    order_ids = [client.placed() for _ in range(3)]
    client.set_attributes(order_ids[1], attempt=ATTEMPTS_MAX + 1)
    status, body, _ = client.get("/orders")
    assert status == 200
    assert sorted(each["order_id"] for each in body["orders"]) == sorted([order_ids[0], order_ids[2]])
    assert client.counted["Alarm"] == 1
    assert [line["order_id"] for line in client.log.lines if line["level"] == "ERROR"] == [order_ids[1]]


def test_a_customers_orders_are_paged(client: Client) -> None:
    """Each of them once, and no other customer's."""
    mine = {client.placed() for _ in range(5)}
    client.customer = "cus_2"
    client.placed()
    client.customer = "cus_1"
    seen, cursor = [], None
    while True:
        query = {"limit": "2", **({"cursor": cursor} if cursor else {})}
        status, body, _ = client.get("/orders", **query)
        assert status == 200
        seen += [each["order_id"] for each in body["orders"]]
        cursor = body["next_cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(mine)


@pytest.mark.parametrize(
    "query",
    [
        {"customer_id": "cus_2"},
        {"limit": "1,2"},  # As API Gateway joins a parameter that is repeated.
        {"limit": "0"},
        {"limit": "51"},
        {"limit": "many"},
        {"cursor": "x"},
        {"cursor": "bnVsbA=="},
        {"cursor": "\u00e9"},
        {"colour": "red"},
    ],
    ids=str,
)
def test_an_invalid_query_is_refused(client: Client, query: dict[str, str]) -> None:
    """400 as problem+json that says where."""
    status, problem, _ = client.get("/orders", **query)
    assert (status, problem["type"]) == (400, "urn:onecharge:problem:invalid-request")
