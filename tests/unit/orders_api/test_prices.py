"""The server prices an order once; what the customer was shown must agree, and a retry keeps its price."""

import pytest
from pydantic import TypeAdapter

from onecharge.contract.money import AmountMinor, Currency, require_chargeable
from orders_api import prices
from tests.support.fixed_prices import PRICES
from tests.support.orders_api import OTHER_CARD, Client, line, order


def test_an_order_costs_what_the_list_says(client: Client) -> None:
    """Quantity times price; a price of one's own is an unknown field."""
    assert client.post(line(quantity=3), key="a")[1]["amount"] == 3750
    assert client.post(order(currency="jpy"), key="b")[1]["amount"] == 4200
    status, problem, _ = client.post(line(unit_amount=1), key="c")
    assert (status, problem["type"]) == (400, "urn:onecharge:problem:invalid-request")
    assert len(client.stored()) == 2


def test_an_amount_that_differs_is_refused(client: Client) -> None:
    """409 that names the present amount, for people and for programs; nothing is stored, so the key is still free."""
    status, problem, _ = client.post(order(amount=1))
    assert (status, problem["type"], problem["amount"]) == (409, "urn:onecharge:problem:amount-differs", 2500)
    assert "25.00 EUR" in problem["detail"]
    assert client.stored() == []
    assert client.post(order(amount=2500))[0] == 202


def test_a_first_try_that_is_stored_late_is_not_ordered_twice(client: Client) -> None:
    """Its retry meets another price. What the customer agrees to then finds the order, under the same key: 202."""
    client.prices = {"mug": {"EUR": 1300}}
    status, problem, _ = client.post(order(amount=2500))
    assert (status, "same Idempotency-Key" in problem["detail"]) == (409, True)
    client.prices = PRICES
    first = client.post(order(amount=2500))
    client.prices = {"mug": {"EUR": 1300}}
    agreed = client.post(order(amount=problem["amount"]))
    assert (agreed[0], agreed[1], agreed[2]["Idempotent-Replayed"]) == (202, first[1], "true")
    assert agreed[1]["amount"] == 2500
    assert len(client.stored()) == 1


def test_what_is_not_for_sale_is_named(client: Client) -> None:
    """400 with a pointer to each sku that is unknown, or that has no price in the currency."""
    client.prices = {**PRICES, "stamp": {"EUR": 95}}
    items = [{"sku": sku, "quantity": 1} for sku in ("mug", "yacht", "stamp")]
    status, problem, _ = client.post(order(currency="usd", items=items))
    assert (status, problem["type"]) == (400, "urn:onecharge:problem:invalid-request")
    assert problem["errors"] == [
        {"pointer": "/items/1/sku", "detail": "There is nothing with this sku"},
        {"pointer": "/items/2/sku", "detail": "This has no price in USD"},
    ]
    assert client.stored() == []


@pytest.mark.parametrize("prices", [{"mug": {"EUR": 9900}}, {"mug": {"EUR": 1}}, {"mug": {}}, {}], ids=str)
def test_a_retry_keeps_the_price_of_its_first_try(client: Client, prices: dict[str, dict[str, int]]) -> None:
    """Whatever the list says by then, the amount that the customer saw included; and so does another attempt."""
    first = client.post(order(amount=2500))
    before = client.stored()
    client.prices = prices
    again = client.post(order(amount=2500))
    assert (again[:2], again[2]["Idempotent-Replayed"]) == (first[:2], "true")
    assert client.stored() == before
    order_id = first[1]["order_id"]
    client.set_status(order_id, "PAYMENT_DECLINED")
    assert client.to(f"{order_id}/payments", OTHER_CARD)[1]["amount"] == 2500


def test_a_used_key_is_refused_for_another_body_whatever_it_costs(client: Client) -> None:
    """422, also if the other body cannot be ordered."""
    client.post(order())
    assert [client.post(each)[0] for each in (line(sku="yacht"), line() | {"amount": 1}, line())] == [422, 422, 422]


def test_an_order_shows_what_it_is_made_of(client: Client) -> None:
    """Each item at the price that was charged, whatever the list says by then."""
    items = [{"sku": "mug", "quantity": 2}, {"sku": "postcard", "quantity": 3}]
    order_id = client.placed(items=items)
    client.prices = {}
    shown = client.get(f"/orders/{order_id}")[1]
    assert shown["items"] == [
        {"sku": "mug", "quantity": 2, "unit_amount": 1250, "amount": 2500},
        {"sku": "postcard", "quantity": 3, "unit_amount": 199, "amount": 597},
    ]
    assert shown["amount"] == 3097
    assert "paid_at" not in shown


def test_the_prices_are_listed(client: Client) -> None:
    """What a page shows is what an order costs."""
    status, body, _ = client.get("/prices")
    assert status == 200
    listed = {(each["sku"], each["currency"]): each["unit_amount"] for each in body["prices"]}
    assert listed["mug", "EUR"] == 1250
    for (sku, currency), unit_amount in listed.items():
        placed = client.post(order(currency=currency, items=[{"sku": sku, "quantity": 1}]), key=f"{sku}-{currency}")
        assert (placed[0], placed[1]["amount"]) == (202, unit_amount)


def test_every_price_can_be_charged() -> None:
    """prices.json has amounts as Stripe takes them, in currencies that it knows, by their codes in upper case."""
    for amounts in prices.PRICES.values():
        for currency, unit_amount in amounts.items():
            assert TypeAdapter(Currency).validate_python(currency) == currency
            require_chargeable(TypeAdapter(AmountMinor).validate_python(unit_amount), currency)
