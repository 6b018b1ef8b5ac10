"""GET /orders: a customer's orders, page by page."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from onecharge.contract.events import ATTEMPT_NUMBER_MAX
from tests.support.orders_api import Client


def listed(client: Client) -> dict[str, str]:
    """Each order of the list with its status, in the list's order."""
    status, body, _ = client.get("/orders")
    assert status == 200
    return {order["order_id"]: order["status"] for order in body["orders"]}


def before_the_orders_are_read(client: Client, happens: Callable[[], object]) -> None:
    """Something happens after the index was read."""

    def happens_now(**_: object) -> None:
        happens()

    client.dynamodb.meta.events.register("before-call.dynamodb.BatchGetItem", happens_now)


def dynamodb_leaves_out_all_but_one(client: Client, *, times: int) -> None:
    """BatchGetItem answers with one order, and names the others as not read: as when it throttles."""
    left = iter(range(times))

    def leave_out(parsed: dict[str, Any], **_: object) -> None:
        if next(left, None) is not None:
            items = parsed["Responses"][client.table]
            keys = [{"order_id": item["order_id"]} for item in items[1:]]
            parsed["Responses"][client.table] = items[:1]
            # At least one key stays, so that the last one can be left out for ever.
            keys = keys or [{"order_id": items[0]["order_id"]}]
            parsed["UnprocessedKeys"] = {client.table: {"Keys": keys, "ConsistentRead": True}}

    client.dynamodb.meta.events.register("after-call.dynamodb.BatchGetItem", leave_out)


def test_the_newest_order_is_first_and_each_is_shown_as_it_is(client: Client) -> None:
    """Whatever happened to an order since the index was read; by one query, and one read of all orders of the page."""
    order_ids = []
    for _ in range(5):
        order_ids.append(client.placed())
        client.now += timedelta(minutes=1)
    before_the_orders_are_read(client, lambda: client.set_status(order_ids[3], "PAID", _1={"status": "PAID"}))
    client.requested = []
    assert listed(client) == dict.fromkeys(reversed(order_ids), "PENDING") | {order_ids[3]: "PAID"}
    assert [*listed(client)] == order_ids[::-1]
    assert [name for name in client.requested if name != "UpdateItem"] == ["Query", "BatchGetItem"] * 2


def test_a_customer_without_orders_costs_one_request(client: Client) -> None:
    client.requested = []
    assert listed(client) == {}
    assert client.requested == ["Query"]


def test_an_order_that_is_gone_is_left_out(client: Client) -> None:
    """It expired since the index was read. The others are shown, and nothing is wrong."""
    order_ids = [client.placed() for _ in range(3)]
    key = {"order_id": {"S": order_ids[1]}}
    before_the_orders_are_read(client, lambda: client.dynamodb.delete_item(TableName=client.table, Key=key))
    assert sorted(listed(client)) == sorted([order_ids[0], order_ids[2]])
    assert client.counted["Alarm"] == 0


def test_an_order_that_is_not_the_customers_is_left_out(client: Client) -> None:
    """Whatever the index says: the item itself is asked whose it is."""
    mine, other = client.placed(), client.placed()
    before_the_orders_are_read(client, lambda: client.set_attributes(other, customer_id="cus_2"))
    assert [*listed(client)] == [mine]


def test_what_dynamodb_leaves_out_of_an_answer_is_read_again(client: Client) -> None:
    """As when it throttles: the list is complete."""
    order_ids = [client.placed() for _ in range(4)]
    dynamodb_leaves_out_all_but_one(client, times=3)
    assert sorted(listed(client)) == sorted(order_ids)
    assert client.requested.count("BatchGetItem") == 4


def test_a_table_that_stays_throttled_is_503_try_again(client: Client) -> None:
    """After ten reads; never a list that lacks orders."""
    for _ in range(4):
        client.placed()
    dynamodb_leaves_out_all_but_one(client, times=1000)
    status, problem, _ = client.get("/orders")
    assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")
    assert client.requested.count("BatchGetItem") == 10


def test_a_list_leaves_out_an_order_that_is_unreadable(client: Client) -> None:
    """For example attempt 101 of a restored table: the others are shown, and an alarm's line says which field of which
    order is invalid, but not its value."""
    order_ids = [client.placed() for _ in range(3)]
    client.set_attributes(order_ids[1], attempt=ATTEMPT_NUMBER_MAX + 1, outcomes={"1": {"status": "jane@example.com"}})
    status, body, _ = client.get("/orders")
    assert status == 200
    assert sorted(each["order_id"] for each in body["orders"]) == sorted([order_ids[0], order_ids[2]])
    assert client.counted["Alarm"] == 1
    [line] = [line for line in client.log.lines if line["level"] == "ERROR"]
    assert (line["order_id"], line["error"]) == (order_ids[1], "ValidationError")
    assert line["fields"] == ["attempt", "outcomes.1.status"]
    assert "jane@example.com" not in client.log.text


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


BAD_QUERIES = [
    {"customer_id": "cus_2"},
    {"limit": "1,2"},  # As API Gateway joins a parameter that is repeated.
    *({"limit": limit} for limit in ("0", "51", "many")),
    *({"cursor": cursor} for cursor in ("x", "bnVsbA==", "\u00e9")),
    {"colour": "red"},
]


def test_an_invalid_query_is_refused(client: Client) -> None:
    """400 as problem+json that says where."""
    for query in BAD_QUERIES:
        status, problem, _ = client.get("/orders", **query)
        assert (status, problem["type"]) == (400, "urn:onecharge:problem:invalid-request"), query
