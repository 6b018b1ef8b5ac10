"""POST /orders: an order is stored once for each customer and key; a bad request is refused and not repeated."""

import base64
import json
from typing import Any

import pytest

from onecharge.contract.money import MINIMUM_MINOR, as_money
from onecharge.orders.ids import order_id_of
from tests.support.orders_api import Client, line, order


def test_an_order_is_accepted(client: Client) -> None:
    """202 with the order's id, status, amount and currency, and its Location."""
    status, body, headers = client.post(order())
    assert (status, body["status"], body["amount"], body["currency"]) == (202, "PENDING", 2500, "EUR")
    assert headers["Location"] == f"/orders/{body['order_id']}"
    assert len(client.stored()) == 1


def test_a_retry_is_replayed_and_stores_nothing(client: Client) -> None:
    """Even with other white space, and after the order has been paid."""
    first = client.post(order())
    client.set_status(first[1]["order_id"], "PAID")
    again = client.post(json.dumps(order(), indent=4))
    assert again[:2] == first[:2]
    assert again[2]["Idempotent-Replayed"] == "true"
    assert [item["status"]["S"] for item in client.stored()] == ["PAID"]


def test_the_same_key_with_another_body_is_refused(client: Client) -> None:
    """422, and the first order does not change."""
    client.post(order())
    status, body, _ = client.post(order(currency="usd"))
    assert (status, body["type"]) == (422, "urn:onecharge:problem:idempotency-key-reused")
    assert [item["currency"]["S"] for item in client.stored()] == ["EUR"]


def test_an_order_id_derives_from_the_shop_the_customer_and_the_key(client: Client) -> None:
    """The same one in every release: a client's retry finds its order by it."""
    assert client.post(order(), key="key-1")[1]["order_id"] == "ord_19dad725b4b8a31ca574b87a5fbe9a89"


def test_no_two_orders_have_the_same_id() -> None:
    """Whatever shops, customers and keys hold."""
    pairs = [("a", "b"), ("b", "a"), ("ab", ""), ("", "ab"), ("a,b", ""), ('a","b', ""), ("a", "c")]
    parts = [*(("s", *pair) for pair in pairs), *((*pair, "s") for pair in pairs), ("t", "a", "b")]
    assert len({order_id_of(*each) for each in parts}) == len(parts)


def test_two_customers_may_use_the_same_key(client: Client) -> None:
    """Each has an order of their own."""
    first = client.post(order())
    client.customer = "cus_2"
    second = client.post(order())
    assert {item["customer_id"]["S"] for item in client.stored()} == {"cus_1", "cus_2"}
    assert first[1]["order_id"] != second[1]["order_id"]


BAD_BODIES: dict[str, Any] = {
    "invalid JSON": '{"currency": ',
    "no JSON object": "[]",
    "an empty body": "",
    "deeply nested": "[" * 100_000,
    "unknown currency": order(currency="xxx"),
    "amount zero": order(amount=0),
    "an amount of 5,000 digits": json.dumps(order(amount=2500)).replace("2500", "9" * 5000),
    "a huge total": order(currency="gbp", items=[{"sku": "land", "quantity": 10_000}] * 2),
    "a price of one's own": line(unit_amount=1),
    "what is not for sale": line(sku="yacht"),
    "a currency without a price": order(currency="chf"),
    "quantity zero": line(quantity=0),
    "quantity true": line(quantity=True),
    "no items": order(items=[]),
    "no currency": {name: value for name, value in order().items() if name != "currency"},
    "a customer": order(customer_id="cus_2"),
    "an unknown field": order(coupon="HELLO"),
    "NaN": json.dumps(order(amount=float("nan"))),
    "a lone surrogate": line(sku="\ud800"),
    "an unknown field named by a lone surrogate": order(**{"\udfff": 1}),
    "NUL": line(sku="\x00"),
    "a byte order mark": "\ufeff" + json.dumps(order()),
}


def test_a_body_that_cannot_be_charged_is_refused(client: Client) -> None:
    """400 as problem+json (RFC 9457), and nothing is stored."""
    for name, body in BAD_BODIES.items():
        status, problem, headers = client.post(body)
        assert (status, headers["Content-Type"]) == (400, "application/problem+json"), name
        assert problem.keys() >= {"type", "title", "status", "detail", "correlation_id"}
    assert client.stored() == []


def test_each_error_has_a_pointer(client: Client) -> None:
    """A JSON Pointer and a sentence for each."""
    _, problem, _ = client.post(order(currency="xxx", items=[{"sku": "mug", "quantity": 0}]))
    assert [error["pointer"] for error in problem["errors"]] == ["/currency", "/items/0/quantity"]


def test_an_unknown_field_is_named(client: Client) -> None:
    """By its JSON Pointer, wherever it is; the pointer of a name that is none of a field's ends at its parent."""
    body = {**line(unit_amount=1), "coupon": "HELLO", "a/b": 1, "sk_test_abc": 1, "x" * 41: 1, "jane@example.com": 1}
    _, problem, _ = client.post(body)
    assert {each["pointer"] for each in problem["errors"]} == {"/items/0/unit_amount", "/coupon", ""}
    assert {each["detail"] for each in problem["errors"]} == {"There is no such field"}


@pytest.mark.parametrize(
    ("key", "kind", "words"),
    [
        (None, "missing", "is required"),
        ("", "missing", "is required"),
        (" ", "invalid", "a space"),
        ("two words", "invalid", "a space"),
        ("a" * 256, "invalid", "256 characters"),
        ("sent-twice,sent-twice", "invalid", "a comma"),
        ("Wörter", "invalid", "not visible ASCII"),
        ("tab\there", "invalid", "not visible ASCII"),
    ],
)
def test_a_bad_idempotency_key_is_refused_in_words(client: Client, key: str | None, kind: str, words: str) -> None:
    """400 that says what is wrong with it and does not repeat it, and nothing is stored."""
    status, problem, _ = client.post(order(), key=key)
    assert (status, problem["type"]) == (400, f"urn:onecharge:problem:idempotency-key-{kind}")
    assert words in problem["detail"]
    assert client.stored() == []


def test_an_amount_below_the_minimum_is_refused(client: Client) -> None:
    """400 for one minor unit less than Stripe charges in that currency, which it names; the minimum is accepted."""
    for currency, minimum in {**MINIMUM_MINOR, "ZAR": 1}.items():
        client.prices = {"mug": {currency: minimum}}
        assert client.post({**line(), "currency": currency}, key=currency)[0] == 202
        if minimum > 1:
            client.prices = {"mug": {currency: minimum - 1}}
            status, problem, _ = client.post({**line(), "currency": currency}, key=f"{currency}-less")
            assert (status, problem["type"]) == (400, "urn:onecharge:problem:invalid-request")
            assert f"at least {as_money(minimum, currency)}" in problem["errors"][0]["detail"]
    assert len(client.stored()) == len(MINIMUM_MINOR) + 1


@pytest.mark.parametrize(
    "payment_method", ["card_1MvoiELkdIwHu7ix", "src_1MvoiELkdIwHu7ix", "tok_visa", "4242424242424242"]
)
def test_only_payment_methods_are_accepted(client: Client, payment_method: str) -> None:
    """400 for the ids of Stripe's older objects and a card's number, for a new order and for another attempt."""
    assert client.post(order(payment_method=payment_method))[0] == 400
    order_id = client.placed()
    client.set_status(order_id, "PAYMENT_DECLINED")
    assert client.to(f"{order_id}/payments", {"payment_method": payment_method})[0] == 400
    assert client.stored()[0]["attempt"]["N"] == "1"


def test_what_is_refused_is_not_repeated(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the response nor the log has the values of a bad request; the log has no unknown names, either."""
    _, problem, _ = client.post(order(currency="secret-1", **{"secret-2": "secret-3", "field": 1}))
    assert "secret" not in client.published_by(problem, capsys)
    assert "field" not in client.log.text


def test_a_body_in_base64_is_read(client: Client) -> None:
    """As API Gateway sends a content type that it takes for binary."""
    event = client.event("place_order")
    event["body"], event["isBase64Encoded"] = base64.b64encode(json.dumps(order()).encode()).decode(), True
    assert client.send(event)[0] == 202


def test_a_body_that_is_no_text_is_refused(client: Client) -> None:
    """Bytes that are not UTF-8: 400, not 500."""
    event = client.event("place_order")
    event["body"], event["isBase64Encoded"] = base64.b64encode(b"\xff\xfe").decode(), True
    assert client.send(event)[0] == 400


def test_an_unavailable_table_is_503_try_again(client: Client) -> None:
    """503; a retry with the same key is safe."""
    client.dynamodb.delete_table(TableName=client.table)
    status, problem, _ = client.post(order())
    assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")


def test_the_correlation_id_is_the_request_id(client: Client) -> None:
    """It is in the response, in the item and in the log: one id is enough to follow an order."""
    _, _, headers = client.post(order())
    request_id = client.sample("orders_api/place_order")["requestContext"]["requestId"]
    assert headers["X-Correlation-Id"] == request_id
    assert client.stored()[0]["correlation_id"]["S"] == request_id
    assert client.log.lines[-1]["correlation_id"] == request_id
