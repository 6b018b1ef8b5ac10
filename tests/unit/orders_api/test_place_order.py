"""POST /orders: one order for each customer and key, at the server's prices; a bad request is refused, not repeated."""

import base64
import json
import time
from importlib import import_module
from typing import Any

import pytest
from pydantic import TypeAdapter

from local.price_list import sold
from onecharge.contract.money import AmountMinor, Currency, require_chargeable
from onecharge.orders.ids import order_id_of
from orders_api import prices
from orders_api.http import BODY_LENGTH_MAX
from tests.support.fixed_prices import PRICES
from tests.support.harness import LambdaContext
from tests.support.orders_api import UNKNOWN, Client, line, order


def test_an_order_has_the_id_of_its_shop_customer_and_key(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function as it is put together: 202, and the item in the table has the id, too. The request's id is the
    correlation id: one id is enough to follow an order."""
    for name, value in {"ORDERS_TABLE": client.table, "ORDER_REFUNDS_TABLE": "refunds", "SHOP": "a-shop"}.items():
        monkeypatch.setenv(name, value)
    sku, currency, _ = sold()
    body = {"currency": currency, "payment_method": "pm_card_visa", "items": [{"sku": sku, "quantity": 2}]}
    event = client.sample("orders_api/place_order") | {"body": json.dumps(body)}
    answer = import_module("orders_api.app").handler(event, LambdaContext())
    order_id = order_id_of("a-shop", "cus_sample", "sample-key-1")
    assert (answer["statusCode"], answer["headers"]["Location"]) == (202, f"/orders/{order_id}")
    [item] = client.stored()
    request_id = event["requestContext"]["requestId"]
    assert answer["headers"]["X-Correlation-Id"] == item["correlation_id"]["S"] == request_id
    assert item["order_id"] == {"S": order_id}


def test_no_two_orders_have_the_same_id() -> None:
    """Whatever shops, customers and keys hold; the same one in every release, by which a retry finds its order."""
    assert order_id_of("a-shop", "cus_1", "key-1") == "ord_19dad725b4b8a31ca574b87a5fbe9a89"
    pairs = [("a", "b"), ("b", "a"), ("ab", ""), ("", "ab"), ("a,b", ""), ('a","b', ""), ("a", "c")]
    parts = [*(("s", *pair) for pair in pairs), *((*pair, "s") for pair in pairs), ("t", "a", "b")]
    assert len({order_id_of(*each) for each in parts}) == len(parts)


def test_the_same_key_with_another_body_is_refused(client: Client) -> None:
    """422, also if the other body cannot be ordered, and the first order does not change."""
    client.post(order())
    before = client.stored()
    for body in (order(currency="usd"), line(sku="yacht"), {**line(), "amount": 1}, line()):
        assert client.post(body).in_brief == (422, "idempotency-key-reused")
    assert client.stored() == before


@pytest.mark.parametrize("prices", [PRICES, {"mug": {"EUR": 9900}}, {"mug": {"EUR": 1}}, {"mug": {}}, {}], ids=str)
def test_a_retry_is_replayed_and_keeps_its_price(client: Client, prices: prices.Prices) -> None:
    """Whatever the list says by then, the amount that the customer saw included, the white space, and the status; and
    so does another attempt. Each has one line in the log, with both ids, and without the key and the card."""
    first = client.post(order(amount=2500))
    order_id = first.body["order_id"]
    client.set(order_id, status="PAYMENT_DECLINED")
    before, client.prices = client.stored(), prices
    again = client.post(json.dumps(order(amount=2500), indent=4))
    assert (again[:2], again.headers["Idempotent-Replayed"]) == (first[:2], "true")
    assert client.stored() == before
    assert client.ask("pay_again", order_id, key="key-2").body["amount"] == 2500
    lines = [(line["message"].partition(":")[0], line["order_id"], line["correlation_id"]) for line in client.log.lines]
    ids = (order_id, first.headers["X-Correlation-Id"])
    assert lines == [(message, *ids) for message in ("order placed", "response replayed", "attempt made")]
    assert not [each for each in ("key-1", "key-2", "pm_card") if each in client.log.text]


# ---------------------------------------------------------------- prices


def test_an_order_costs_what_the_list_says(client: Client) -> None:
    """Quantity times price, in each currency that GET /prices lists; the order shows each item at the price that was
    charged, whatever the list says by then."""
    listed = {(each["sku"], each["currency"]): each["unit_amount"] for each in client.ask("list_prices").body["prices"]}
    assert (listed["mug", "EUR"], len(listed)) == (1250, sum(map(len, PRICES.values())))
    for (sku, currency), unit_amount in listed.items():
        body = order(currency=currency.lower(), items=[{"sku": sku, "quantity": 2}])
        placed = client.post(body, key=f"{sku}-{currency}")
        assert (placed.body["amount"], placed.body["currency"]) == (2 * unit_amount, currency)
    items = [{"sku": "mug", "quantity": 2}, {"sku": "postcard", "quantity": 3}]
    order_id = client.post(order(items=items)).body["order_id"]
    client.prices, shown = {}, client.shown(order_id)
    assert [(each["unit_amount"], each["amount"]) for each in shown["items"]] == [(1250, 2500), (199, 597)]
    assert shown["amount"] == 3097


def test_an_amount_that_differs_is_refused(client: Client) -> None:
    """409 that names the present amount, for people and for programs; nothing is stored, so the key is still free. If
    the first try was stored after all, what the customer agrees to finds that order, under the same key."""
    client.prices = {"mug": {"EUR": 1300}}
    refused = client.post(order(amount=2500))
    assert (refused.in_brief, refused.body["amount"]) == ((409, "amount-differs"), 2600)
    assert "26.00 EUR" in refused.body["detail"]
    assert "same Idempotency-Key" in refused.body["detail"]
    assert client.stored() == []
    client.prices = PRICES
    first = client.post(order(amount=2500))
    client.prices = {"mug": {"EUR": 1300}}
    agreed = client.post(order(amount=2600))
    assert (agreed[:2], agreed.headers["Idempotent-Replayed"], agreed.body["amount"]) == (first[:2], "true", 2500)
    assert len(client.stored()) == 1


def test_what_is_not_for_sale_is_named(client: Client) -> None:
    """400 with a pointer to each sku that is unknown, or that has no price in the currency."""
    client.prices = {**PRICES, "stamp": {"EUR": 95}}
    items = [{"sku": sku, "quantity": 1} for sku in ("mug", "yacht", "stamp")]
    refused = client.post(order(currency="usd", items=items))
    assert refused.in_brief == (400, "invalid-request")
    assert [(each["pointer"], each["detail"]) for each in refused.body["errors"]] == [
        ("/items/1/sku", "There is nothing with this sku"),
        ("/items/2/sku", "This has no price in USD"),
    ]


def test_every_price_can_be_charged() -> None:
    """prices.json has amounts as Stripe takes them, in currencies that it knows, by their codes in upper case."""
    for amounts in prices.PRICES.values():
        for currency, unit_amount in amounts.items():
            assert TypeAdapter(Currency).validate_python(currency) == currency
            require_chargeable(TypeAdapter(AmountMinor).validate_python(unit_amount), currency)


# ---------------------------------------------------------------- bad requests, on every route that takes a body

_SECONDS_MAX = 10
"""Of computing: what takes longer than linear time takes hours, 6 MB field by field half a minute. A machine that is
busy with something else does not count."""
HOSTILE = {
    "digits": "4" * 6_000_000,
    "nested lists": "[" * 6_000_000,
    "many items": json.dumps(order(items=[{"sku": "mug", "quantity": 1}] * 100_000)),
    "many names": json.dumps({f"name{number}": number for number in range(300_000)}),
}
"""As much as a synchronous invocation takes (AWS Lambda Developer Guide, "Lambda quotas")."""
LONGEST = json.dumps(order(items=[{"sku": "\u20ac" * 64, "quantity": 10_000}] * 100, amount=99_999_999))
_JSON, _INVALID = "invalid-json", "invalid-request"
BAD_BODIES: dict[str, tuple[str, Any, str]] = {
    "invalid JSON": ("place_order", '{"currency": ', _JSON),
    **{f"an empty body on {name}": (name, "", _JSON) for name in ("place_order", "pay_again", "refund_order")},
    "an amount of 5,000 digits": ("place_order", json.dumps(order(amount=2500)).replace("2500", "9" * 5000), _JSON),
    "an unknown currency": ("place_order", order(currency="xxx"), _INVALID),
    "a currency without a price": ("place_order", order(currency="chf"), _INVALID),
    "amount zero": ("place_order", order(amount=0), _INVALID),
    "a huge total": ("place_order", order(currency="gbp", items=[{"sku": "land", "quantity": 10_000}] * 2), _INVALID),
    "a price of one's own": ("place_order", line(unit_amount=1), _INVALID),
    "quantity zero": ("place_order", line(quantity=0), _INVALID),
    "quantity true": ("place_order", line(quantity=True), _INVALID),
    "no items": ("place_order", order(items=[]), _INVALID),
    "a customer": ("place_order", order(customer_id="cus_2"), _INVALID),
    "NUL": ("place_order", line(sku="\x00"), _INVALID),
    "the longest order": ("place_order", LONGEST, _INVALID),
    "an attempt's amount": ("pay_again", {"payment_method": "pm_a", "amount": 1}, _INVALID),
    **{
        f"{card} on {name}": (name, body | {"payment_method": card}, _INVALID)
        for card in ("card_1MvoiELkdIwHu7ix", "4242424242424242")
        for name, body in (("place_order", order()), ("pay_again", {}))
    },
    **{
        f"a refund of {body}": ("refund_order", body, _INVALID)
        for body in (
            *({"amount": amount} for amount in (0, 10.5, "10")),
            *({"reason": reason} for reason in ("", "a cup\nrfd_1 became SUCCEEDED")),
            {"sum": 10},
        )
    },
    **{f"6 MB: {name}": ("place_order", body, "body-too-long") for name, body in HOSTILE.items()},
    **{f"cut: {name}": ("place_order", body[:BODY_LENGTH_MAX], _JSON) for name, body in HOSTILE.items()},
}


@pytest.mark.parametrize(("name", "body", "kind"), BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_body_that_cannot_be_charged_is_refused(client: Client, name: str, body: Any, kind: str) -> None:
    """400 as problem+json (RFC 9457), in linear time, however large or nested it is; and nothing is stored."""
    started = time.thread_time()
    answer = client.ask(name, UNKNOWN, body)
    assert time.thread_time() - started < _SECONDS_MAX
    assert (answer.in_brief, answer.headers["Content-Type"]) == ((400, kind), "application/problem+json")
    assert answer.body.keys() >= {"type", "title", "status", "detail", "correlation_id"}
    assert client.stored() == []


@pytest.mark.parametrize("name", ["place_order", "pay_again", "refund_order"])
def test_a_bad_idempotency_key_is_refused(client: Client, name: str) -> None:
    """400 on every route that takes one, and nothing is stored: `k,k` is the header `k` that was sent twice."""
    for key in ("", " ", "two words", "a" * 256, "sent-twice,sent-twice", "Wörter", "tab\there"):
        answer = client.ask(name, UNKNOWN, key=key)
        assert answer.in_brief == (400, f"idempotency-key-{'invalid' if key else 'missing'}"), key
    event = client.event(name)
    del event["headers"]["idempotency-key"]
    assert client.send(event).kind == "idempotency-key-missing"
    assert client.stored() == []


def test_what_is_refused_is_not_repeated(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """Each error has a JSON Pointer and a sentence. An unknown field is named by its pointer, which ends at its parent
    if its name is none of a field's; neither the response nor the log has a value, and the log has no name."""
    names = {"coupon": "secret-1", "a/b": 1, "sk_test_abc": 1, "x" * 41: 1, "jane@example.com": 1, "\udfff": 1}
    items = [{"sku": "mug", "quantity": 0, "unit_amount": 1}]
    refused = client.post(json.dumps(order(currency="secret-2", items=items, **names)).replace(r"\udfff", "ü"))
    pointers = {each["pointer"] for each in refused.body["errors"]}
    assert pointers == {"/currency", "/items/0/quantity", "/items/0/unit_amount", "/coupon", ""}
    assert [each["detail"] for each in refused.body["errors"]].count("There is no such field") == 7
    published = client.published_by(refused.body, capsys)
    assert not [each for each in ("secret", "sk_test", "jane", "xxx", "a/b") if each in published]
    assert "coupon" not in client.log.text


def test_a_body_in_base64_is_read(client: Client) -> None:
    """As API Gateway sends a content type that it takes for binary; bytes that are not UTF-8 are refused."""
    for sent, status in ((json.dumps(order()).encode(), 202), (b"\xff\xfe", 400)):
        event = client.event("place_order") | {"body": base64.b64encode(sent).decode(), "isBase64Encoded": True}
        assert client.send(event).status == status


@pytest.mark.parametrize("name", ["place_order", "list_orders", "get_order", "pay_again", "cancel_order"])
def test_an_unavailable_table_is_503_try_again(client: Client, name: str) -> None:
    """On every route; a retry with the same key is safe."""
    client.dynamodb.delete_table(TableName=client.table)
    assert client.ask(name).in_brief == (503, "try-again")
