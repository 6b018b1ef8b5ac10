"""An order's whole way on the deployed stack: from HTTP to Stripe's ledger and back to the order's status."""

import json
import time
from typing import Any

import jwt
import pytest
import requests

from local.given_stripe import STRIPE_API_KEY
from local.stack import Stack
from tests.support.deployed_shop import (
    AMOUNT,
    DECLINED_CARD,
    PATIENCE_SECONDS,
    PRICE,
    THREE_D_SECURE_CARD,
    DeployedShop,
    eventually,
)
from tests.support.stacks import on_both

FUNCTIONS = {"orders_api", "publish_events", "charge_order", "update_order"}
UNAUTHORIZED, FORBIDDEN = (401, '{"message": "Unauthorized"}'), (403, '{"message": "Forbidden"}')


@on_both
def test_a_declined_order_is_paid_with_another_card(shop: DeployedShop) -> None:
    """One charge of what was ordered, and one correlation id in every function's log. Both attempts are shown."""
    placed = shop.order(payment_method=DECLINED_CARD)
    order_id, correlation_id = placed.json()["order_id"], placed.headers["X-Correlation-Id"]
    assert (placed.status_code, placed.headers["Location"]) == (202, f"/orders/{order_id}")
    assert shop.decided_status(order_id) == "PAYMENT_DECLINED"
    assert shop.post(f"{order_id}/payments", payment_method="pm_card_visa").status_code == 202
    assert shop.decided_status(order_id) == "PAID"
    first, second = shop.get(order_id).json()["attempts"]
    assert (first["status"], first["decline_code"]) == ("PAYMENT_DECLINED", "insufficient_funds")
    assert (second["attempt"], second["status"]) == (2, "PAID")
    assert [charge.amount_minor for charge in shop.charges(order_id)] == [AMOUNT]

    def services() -> set[str]:
        lines = [line for line in shop.log().splitlines() if line.startswith("{") and correlation_id in line]
        return {json.loads(line)["service"] for line in lines}

    assert eventually(services, lambda seen: seen == FUNCTIONS) == FUNCTIONS


@on_both
@pytest.mark.parametrize(
    ("card", "status"), [(DECLINED_CARD, "PAYMENT_DECLINED"), (THREE_D_SECURE_CARD, "REQUIRES_ACTION")]
)
def test_an_order_that_is_not_paid_is_canceled(shop: DeployedShop, card: str, status: str) -> None:
    """CANCELED is final: no other card is taken, no page can confirm it, nothing is charged."""
    order_id = shop.placed(card, status)
    requested = shop.post(f"{order_id}/cancel")
    assert (requested.status_code, requested.json()["status"]) == (202, "CANCELING")
    assert shop.decided_status(order_id) == "CANCELED"
    assert shop.post(f"{order_id}/payments", payment_method="pm_card_visa").status_code == 409
    assert {each["status"] for each in shop.intents(order_id)} <= {"canceled", "requires_payment_method"}
    assert shop.charges(order_id) == []


@on_both
def test_an_order_is_paid_at_the_bank_and_refunded(shop: DeployedShop) -> None:
    """By Stripe's events, the last one first, and each twice: one charge. Refunds by the API and by hand are never more
    than was paid; a retried request is one refund."""
    order_id = shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION")
    [intent] = shop.intents(order_id)
    shop.stripe.authenticate(intent["id"])
    events = [number for number, event in enumerate(shop.stripe.events()) if intent["id"] in json.dumps(event)]
    assert len(events) >= 2
    assert set(shop.stripe.deliver_webhooks(events[::-1] * 2)) == {200}
    assert eventually(lambda: shop.decided_status(order_id), lambda status: status == "PAID") == "PAID"
    assert [charge.amount_minor for charge in shop.charges(order_id)] == [AMOUNT]

    def shown() -> tuple[int, set[str]]:
        order = shop.get(order_id).json()
        return order["amount_refunded"], {each["status"] for each in order["refunds"]}

    answers = [shop.refund(order_id, "k", amount=PRICE - 10) for _ in range(2)]
    assert [(answer.status_code, answer.text) for answer in answers] == [(202, answers[0].text)] * 2
    assert eventually(shown, lambda now: now == (PRICE - 10, {"SUCCEEDED"})) == (PRICE - 10, {"SUCCEEDED"})
    by_hand = {"payment_intent": intent["id"], "amount": "10"}
    url, headers = f"{shop.stack.stripe_api_base}/v1/refunds", {"Authorization": f"Bearer {STRIPE_API_KEY}"}
    requests.post(url, by_hand, headers=headers, timeout=PATIENCE_SECONDS).raise_for_status()
    shop.stripe.deliver_webhooks()
    assert eventually(shown, lambda now: now[0] == PRICE)[0] == PRICE
    assert shop.refund(order_id, amount=PRICE + 1).status_code == 409
    assert shop.refund(order_id, amount=PRICE).status_code == 202
    assert eventually(shown, lambda now: now == (AMOUNT, {"SUCCEEDED"})) == (AMOUNT, {"SUCCEEDED"})
    refunds = [each for each in shop.stripe.ledger().refunds if each["payment_intent"] == intent["id"]]
    assert sorted(each["amount"] for each in refunds) == [10, PRICE - 10, PRICE]


def test_a_stranger_gets_in_nowhere(shop: DeployedShop, stack: Stack) -> None:
    """On every route that the deployed API has, but Stripe's: 401, and nothing is stored. A customer refunds nothing,
    the staff does."""
    api_id = stack.api_url.rstrip("/").split("/")[-2]
    routes = stack.aws.client("apigatewayv2").get_routes(ApiId=api_id)["Items"]
    open_routes = {each["RouteKey"] for each in routes if each["AuthorizationType"] == "NONE"}
    assert open_routes == {"POST /stripe/events"}
    order_id, issuer = shop.placed("pm_card_visa", "PAID"), stack.issuer
    claims: dict[str, Any] = issuer.claims("cus_e2e", scope="onecharge/refund")
    tokens = {
        "no token": "",
        "expired": issuer.signed({**claims, "exp": int(time.time()) - 1}),
        "another audience": issuer.signed({**claims, "aud": "another-api"}),
        "no signature": issuer.signed(claims).rpartition(".")[0] + ".",
        "alg none": jwt.encode(claims, "", algorithm="none", headers={"kid": issuer.key_id}),
    }
    stored = shop.stored_orders()

    def send(route: str, token: str) -> tuple[int, str]:
        method, path = route.replace("{order_id}", order_id).split(" ")
        headers = {"Idempotency-Key": "k", **({"Authorization": f"Bearer {token}"} if token else {})}
        answer = requests.request(method, stack.api_url + path, json={}, headers=headers, timeout=PATIENCE_SECONDS)
        return answer.status_code, answer.text

    guarded = {each["RouteKey"] for each in routes} - open_routes
    seen = {(route, who): send(route, token) for route in guarded for who, token in tokens.items()}
    assert {each: answer for each, answer in seen.items() if answer != UNAUTHORIZED} == {}
    assert shop.stored_orders() == stored
    assert send("POST /orders/{order_id}/refunds", issuer.token("cus_e2e", "onecharge/refunds")) == FORBIDDEN
    assert shop.refund(order_id, amount=1).status_code == 202
