"""GET /orders/{order_id} and GET /orders: an order as it is, to its customer; a list page by page."""

from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import pytest

from onecharge.contract.events import ATTEMPT_NUMBER_MAX
from orders_api.declines import DECLINED, message_for
from tests.support.orders_api import Client

_DECLINE = {"status": "PAYMENT_DECLINED", "decline_code": "insufficient_funds"}
_MESSAGE = {"message": "This card has insufficient funds. Please try another card."}
SHOWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "new": ({}, {"status": "PENDING", "amount": 2500, "attempts": [{"attempt": 1, "status": "PENDING"}]}),
    "declined": (
        {"status": "PAYMENT_DECLINED", "outcomes": {"1": _DECLINE}},
        {"attempts": [{"attempt": 1, **_DECLINE, **_MESSAGE}]},
    ),
    "paid again": (
        {"attempt": 2, "outcomes": {"1": _DECLINE}},
        {"attempts": [{"attempt": 1, **_DECLINE, **_MESSAGE}, {"attempt": 2, "status": "PENDING"}]},
    ),
    "an earlier attempt succeeded late": (
        {"status": "PAID", "attempt": 2, "paid_attempt": 1, "outcomes": {"1": {"status": "PAID"}}},
        {"attempts": [{"attempt": 1, "status": "PAID"}, {"attempt": 2, "status": "CANCELED"}]},
    ),
    "paid": (
        {"status": "PAID", "paid_attempt": 1, "paid_at": "2026-11-01T09:00:02+00:00"},
        {"paid_at": "2026-11-01T09:00:02+00:00", "attempts": [{"attempt": 1, "status": "PAID"}]},
    ),
    "requires action": ({"status": "REQUIRES_ACTION"}, {"status": "REQUIRES_ACTION", "next_step": ANY}),
    "disputed": ({"status": "PAID", "dispute_status": "needs_response"}, {"dispute_status": "needs_response"}),
    "expired": (
        {"status": "CANCELED", "cancel_reason": "expired", "outcomes": {"1": {"status": "REQUIRES_ACTION"}}},
        {"cancel_reason": "expired", "attempts": [{"attempt": 1, "status": "CANCELED"}]},
    ),
    "canceled by hand": ({"status": "CANCELED"}, {"status": "CANCELED"}),
}
SOMETIMES = {"paid_at", "cancel_reason", "dispute_status", "next_step"}


@pytest.mark.parametrize(("stored", "shown"), SHOWN.values(), ids=SHOWN)
def test_an_order_is_shown_as_it_is(client: Client, stored: dict[str, Any], shown: dict[str, Any]) -> None:
    """With its attempts: why each was declined, by a code and in words, and the present one; in a list alike. A field
    that says nothing is left out."""
    order_id = client.placed(**stored)
    [listed] = client.ask("list_orders").body["orders"]
    for each in (client.shown(order_id), listed):
        assert {name: each[name] for name in shown} == shown
        assert each.keys() & SOMETIMES == shown.keys() & SOMETIMES


def test_a_decline_has_a_message_of_its_own() -> None:
    """If the same card may succeed, the message does not ask for another one. The suspicion of an issuer is not shown:
    the customer reads only that the card was declined, and so does one whose code is not known."""
    for code in ("authentication_required", "duplicate_transaction", "issuer_not_available", "payment_method_used"):
        assert "another card" not in message_for(code)
    for code in ("currency_not_supported", "payment_method_of_another_customer", "payment_method_unknown"):
        assert message_for(code) != DECLINED
    for suspected in ("fraudulent", "lost_card", "stolen_card", "a_code_of_tomorrow", None):
        assert message_for(suspected) == DECLINED == "The card was declined. Please try another card."


# ---------------------------------------------------------------- the list


def listed(client: Client) -> dict[str, str]:
    """Each order of the list with its status, in the list's order."""
    answer = client.ask("list_orders")
    assert answer.status == 200
    return {order["order_id"]: order["status"] for order in answer.body["orders"]}


def test_the_newest_order_is_first_and_each_is_shown_as_it_is(client: Client) -> None:
    """Whatever happened to an order since the index was read: one that expired, or is not the customer's, is left out,
    and nothing is wrong. One query, and one read of all orders of the page; none of them costs one request."""
    assert (listed(client), client.requested) == ({}, ["Query"])
    order_ids = []
    for _ in range(5):
        order_ids.append(client.placed())
        client.now += timedelta(minutes=1)

    def happens_meanwhile(**_: object) -> None:
        client.set(order_ids[3], status="PAID")
        client.set(order_ids[2], customer_id="cus_2")
        client.dynamodb.delete_item(TableName=client.table, Key={"order_id": {"S": order_ids[1]}})

    client.dynamodb.meta.events.register("before-call.dynamodb.BatchGetItem", happens_meanwhile)
    client.requested = []
    assert [*listed(client).items()] == [(order_ids[4], "PENDING"), (order_ids[3], "PAID"), (order_ids[0], "PENDING")]
    reads = [name for name in client.requested if name in ("Query", "GetItem", "BatchGetItem")]
    assert reads == ["Query", "BatchGetItem"]
    assert client.counted["Alarm"] == 0


def test_a_list_never_lacks_what_dynamodb_throttles(client: Client) -> None:
    """It is read again, ten times at most; then 503."""
    key = {"order_id": {"S": client.placed()}}

    def leave_out(parsed: dict[str, Any], **_: object) -> None:
        parsed["UnprocessedKeys"] = {client.table: {"Keys": [key], "ConsistentRead": True}}

    client.dynamodb.meta.events.register("after-call.dynamodb.BatchGetItem", leave_out)
    assert client.ask("list_orders").in_brief == (503, "try-again")
    assert client.requested.count("BatchGetItem") == 10


def test_a_list_leaves_out_an_order_that_is_unreadable(client: Client) -> None:
    """For example attempt 101 of a restored table: the others are shown, and an alarm's line says which field of which
    order is invalid, but not its value."""
    order_ids = [client.placed() for _ in range(3)]
    client.set(order_ids[1], attempt=ATTEMPT_NUMBER_MAX + 1, outcomes={"1": {"status": "jane@example.com"}})
    assert sorted(listed(client)) == sorted([order_ids[0], order_ids[2]])
    assert client.counted["Alarm"] == 1
    [line] = [line for line in client.log.lines if line["level"] == "ERROR"]
    assert (line["order_id"], line["error"]) == (order_ids[1], "attempt: less_than_equal")
    assert "jane@example.com" not in client.log.text


def test_a_customers_orders_are_paged(client: Client) -> None:
    """Each of them once, also those of one moment, and no other customer's. A cursor is the same in a query as in a
    response, encoded or not."""
    mine = {client.placed() for _ in range(3)}
    client.now += timedelta(microseconds=1)
    mine |= {client.placed() for _ in range(2)}
    client.customer = "cus_2"
    client.placed()
    client.customer = "cus_1"
    seen, query = list[str](), {"limit": "2"}
    while query.get("cursor", "first"):
        body = client.ask("list_orders", **query).body
        seen += [each["order_id"] for each in body["orders"]]
        query["cursor"] = body["next_cursor"] or ""
        assert not set(query["cursor"]) & set("+&=#% ")
    assert sorted(seen) == sorted(mine)


@pytest.mark.parametrize(
    ("name", "values"),
    {"limit": ["0", "51", "1,2"], "cursor": ["", "ord_1_2026-11-01T09:00:00"], "customer_id": ["cus_2"]}.items(),
)
def test_an_invalid_query_is_refused(client: Client, name: str, values: list[str]) -> None:
    """400 as problem+json that says where. API Gateway joins a parameter that is repeated by a comma."""
    for value in values:
        answer = client.ask("list_orders", **{name: value})
        assert answer.in_brief == (400, "invalid-request")
        assert [each["pointer"] for each in answer.body["errors"]] == [f"/{name}"]
