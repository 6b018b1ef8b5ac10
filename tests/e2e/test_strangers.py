"""Strangers on the deployed stack: on every route whoever has no right to be there is refused, and sees nothing.

The routes are those of the deployed API, so that a new one is tested without being named here.
"""

import base64
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
import pytest
import requests

from local.issuer import Issuer, running_issuer
from local.stack import Stack
from tests.support.deployed_shop import CURRENCY, SKU, DeployedShop, signed_in

UNKNOWN = "ord_" + "0" * 32
BODIES: Mapping[str, Mapping[str, Any]] = {
    "POST /orders": {
        "currency": CURRENCY,
        "payment_method": "pm_card_visa",
        "items": [{"sku": SKU, "quantity": 1}],
    },
    "POST /orders/{order_id}/payments": {"payment_method": "pm_card_visa"},
    "POST /orders/{order_id}/refunds": {"amount": 1},
}
"""A body that the route accepts from whoever may send it."""
STRIPES = "POST /stripe/events"
"""The one route without a token: Stripe signs its requests (test_webhooks.py)."""


class Api:
    """The routes of the deployed API, as its API Gateway has them."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        gateway = stack.aws.client("apigatewayv2")
        api_id = stack.api_url.rstrip("/").split("/")[-2]
        self.routes = {each["RouteKey"]: each for each in gateway.get_routes(ApiId=api_id)["Items"]}
        self.guarded = sorted(self.routes.keys() - {STRIPES})

    def scope(self, route: str) -> str:
        return " ".join(self.routes[route].get("AuthorizationScopes", []))

    def send(self, route: str, token: str | None, order_id: str = UNKNOWN) -> requests.Response:
        method, path = route.split(" ")
        authorization = {} if token is None else {"Authorization": f"Bearer {token}"}
        return requests.request(
            method,
            self.stack.api_url + path.replace("{order_id}", order_id),
            json=BODIES.get(route),
            headers={"Idempotency-Key": str(uuid4()), **authorization},
            timeout=90,
        )


@pytest.fixture
def api(stack: Stack) -> Api:
    return Api(stack)


@pytest.fixture
def other_issuer(tmp_path: Path) -> Iterator[Issuer]:
    """One that has its own key, and calls it as the right one calls its own."""
    with running_issuer(tmp_path) as issuer:
        yield issuer


def segment(content: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def strangers(right: Issuer, other: Issuer, claims: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Tokens that open nothing; the claims are those of a token that would."""
    now = int(time.time())
    good = right.signed(claims)
    header, payload, signature = good.split(".")
    public_key = requests.get(f"{right.url}/jwks.json", timeout=60).text
    yield "no token", None
    yield "nothing", ""
    yield "no JWT", "garbage"
    yield "three words", "a.b.c"
    yield "expired", right.signed({**claims, "exp": now - 1})
    yield "not yet valid", right.signed({**claims, "nbf": now + 600})
    yield "issued in the future", right.signed({**claims, "iat": now + 600})
    yield "another audience", right.signed({**claims, "aud": "another-api"})
    yield "no audience", right.signed({name: each for name, each in claims.items() if name != "aud"})
    yield "an ID token's audience", right.signed({**claims, "aud": ["a-web-client", "another"]})
    yield "another issuer's name", right.signed({**claims, "iss": other.url})
    yield "another issuer", other.signed({**claims, "iss": other.url})
    yield "another issuer's key", other.signed(claims)
    yield "a key that nobody has", replace(right, key_id="unknown").signed(claims)
    yield "no signature", f"{header}.{payload}."
    yield "a payload of another token", f"{header}.{segment({**claims, 'sub': 'cus_2'})}.{signature}"
    yield "alg none", jwt.encode(claims, "", algorithm="none", headers={"kid": right.key_id})
    yield "alg none, without a kid", jwt.encode(claims, "", algorithm="none")
    # The public key as the secret of an HMAC: a verifier that trusts the header's alg would accept it.
    yield "HS256", jwt.encode(claims, public_key * 2, algorithm="HS256", headers={"kid": right.key_id})


def test_who_has_no_token_gets_in_nowhere(api: Api, stack: Stack, shop: DeployedShop, other_issuer: Issuer) -> None:
    """401 on every route, known or not, for a known order as for an unknown one: all answers are the same."""
    order_id = str(shop.order().json()["order_id"])
    stored = shop.stored_orders()
    answers = {
        (route, name, each): api.send(route, token, each)
        for route in api.guarded
        for each in (order_id, UNKNOWN)
        for name, token in strangers(
            stack.issuer, other_issuer, stack.issuer.claims("cus_e2e", scope=api.scope(route) or "openid")
        )
    }
    assert {which: answer.status_code for which, answer in answers.items() if answer.status_code != 401} == {}
    assert {answer.text for answer in answers.values()} == {'{"message": "Unauthorized"}'}
    assert shop.stored_orders() == stored


def test_the_routes_that_are_tested_are_there(api: Api) -> None:
    """Of the tests here none is passed because there is nothing to test; and only Stripe's is open."""
    assert set(BODIES) <= set(api.guarded)
    assert {"GET /orders", "GET /orders/{order_id}"} <= set(api.guarded)
    assert {route for route, each in api.routes.items() if each["AuthorizationType"] == "NONE"} <= {STRIPES}


def test_the_same_requests_with_a_token_are_served(api: Api, stack: Stack) -> None:
    """What the strangers lack is the token alone: with it, no request is 401 or 403."""
    for route in api.guarded:
        answer = api.send(route, stack.issuer.token("cus_e2e", api.scope(route)))
        expected = {"GET /orders": 200, "GET /prices": 200, "POST /orders": 202}.get(route, 404)
        assert answer.status_code == expected, (route, answer.text)
        assert answer.headers["Content-Type"] == f"application/{'problem+json' if expected == 404 else 'json'}"


def test_a_customer_cannot_refund_and_the_staff_can(api: Api, shop: DeployedShop) -> None:
    """403 without the scope, also for one's own order, whatever else the token allows; then 202 for the staff's."""
    order_id = str(shop.order().json()["order_id"])
    assert shop.decided_status(order_id) == "PAID"
    for scope in ("", "openid", "onecharge/refunds", "onecharge"):
        refused = api.send("POST /orders/{order_id}/refunds", shop.stack.issuer.token("cus_e2e", scope), order_id)
        assert (refused.status_code, refused.text) == (403, '{"message": "Forbidden"}')
    assert shop.get(order_id).json()["refunds"] == []
    assert shop.refund(order_id, amount=1).status_code == 202


def test_no_log_has_a_token(shop: DeployedShop) -> None:
    """Neither of whoever got in nor of whoever did not."""
    token = shop.stack.issuer.token("cus_e2e", "openid")
    assert signed_in(token).get(f"{shop.stack.api_url}/orders", timeout=90).status_code == 200
    assert signed_in(token).delete(f"{shop.stack.api_url}/orders", timeout=90).status_code == 404
    log = shop.log()
    assert token not in log
    assert token.split(".")[1] not in log
