"""Strangers on the deployed stack: on every route whoever has no right to be there is refused, and sees nothing.

The routes are those of the deployed API, so that a new one is tested without being named here.
"""

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
import pytest
import requests

from local.issuer import Issuer, running_issuer
from tests.support.deployed_shop import PATIENCE_SECONDS, DeployedShop, signed_in
from tests.support.orders_api import UNKNOWN

STRIPES = "POST /stripe/events"
"""The one route without a token: Stripe signs its requests (test_webhooks.py)."""


class Api:
    """The routes of the deployed API, as its API Gateway has them."""

    def __init__(self, shop: DeployedShop) -> None:
        gateway = shop.stack.aws.client("apigatewayv2")
        api_id = shop.stack.api_url.rstrip("/").split("/")[-2]
        self.routes = {each["RouteKey"]: each for each in gateway.get_routes(ApiId=api_id)["Items"]}
        self.url, self.issuer = shop.stack.api_url, shop.stack.issuer
        self.bodies = {
            "POST /orders": shop.body(),
            "POST /orders/{order_id}/payments": {"payment_method": "pm_card_visa"},
            "POST /orders/{order_id}/refunds": {"amount": 1},
        }

    def scope(self, route: str) -> str:
        return " ".join(self.routes[route].get("AuthorizationScopes", []))

    def send(self, route: str, token: str | None, order_id: str = UNKNOWN) -> requests.Response:
        """With a body that the route accepts from whoever may send it."""
        method, path = route.split(" ")
        headers = {"Idempotency-Key": str(uuid4())}
        headers |= {} if token is None else {"Authorization": f"Bearer {token}"}
        url = self.url + path.replace("{order_id}", order_id)
        return requests.request(method, url, json=self.bodies.get(route), headers=headers, timeout=PATIENCE_SECONDS)


@pytest.fixture
def api(shop: DeployedShop) -> Api:
    return Api(shop)


@pytest.fixture
def other_issuer(tmp_path: Path) -> Iterator[Issuer]:
    """One that has its own key, and calls it as the right one calls its own."""
    with running_issuer(tmp_path) as issuer:
        yield issuer


def strangers(right: Issuer, other: Issuer, claims: dict[str, Any]) -> dict[str, str | None]:
    """Tokens that open nothing; the claims are those of a token that would."""
    now = int(time.time())
    header, payload, signature = right.signed(claims).split(".")
    forged = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "cus_2"}).encode()).decode().rstrip("=")
    public_key = requests.get(f"{right.url}/jwks.json", timeout=60).text
    return {
        "no token": None,
        "nothing": "",
        "no JWT": "garbage",
        "three words": "a.b.c",
        "expired": right.signed({**claims, "exp": now - 1}),
        "not yet valid": right.signed({**claims, "nbf": now + 600}),
        "issued in the future": right.signed({**claims, "iat": now + 600}),
        "another audience": right.signed({**claims, "aud": "another-api"}),
        "no audience": right.signed({name: each for name, each in claims.items() if name != "aud"}),
        "an ID token's audience": right.signed({**claims, "aud": ["a-web-client", "another"]}),
        "another issuer's name": right.signed({**claims, "iss": other.url}),
        "another issuer": other.signed({**claims, "iss": other.url}),
        "another issuer's key": other.signed(claims),
        "a key that nobody has": replace(right, key_id="unknown").signed(claims),
        "no signature": f"{header}.{payload}.",
        "a payload of another token": f"{header}.{forged}.{signature}",
        "alg none": jwt.encode(claims, "", algorithm="none", headers={"kid": right.key_id}),
        "alg none, without a kid": jwt.encode(claims, "", algorithm="none"),
        # The public key as the secret of an HMAC: a verifier that trusts the header's alg would accept it.
        "HS256": jwt.encode(claims, public_key * 2, algorithm="HS256", headers={"kid": right.key_id}),
    }


def test_a_stranger_gets_in_nowhere(api: Api, shop: DeployedShop, other_issuer: Issuer) -> None:
    """401 on every route but Stripe's, known or not, for a known order as for an unknown one: all answers are the same.
    With the token that they lack the same requests are served."""
    open_routes = {route for route, each in api.routes.items() if each["AuthorizationType"] == "NONE"}
    assert open_routes <= {STRIPES}
    assert {*api.bodies, "GET /orders", "GET /orders/{order_id}"} <= api.routes.keys()
    order_id = str(shop.order().json()["order_id"])
    stored = shop.stored_orders()
    seen = {}
    for route in sorted(api.routes.keys() - {STRIPES}):
        claims = api.issuer.claims("cus_e2e", scope=api.scope(route) or "openid")
        for name, token in strangers(api.issuer, other_issuer, claims).items():
            for each in (order_id, UNKNOWN):
                answer = api.send(route, token, each)
                seen[route, name, each] = answer.status_code, answer.text
    assert {each: seen[each] for each in seen if seen[each] != (401, '{"message": "Unauthorized"}')} == {}
    assert shop.stored_orders() == stored
    for route in api.routes.keys() - {STRIPES}:
        answer = api.send(route, api.issuer.token("cus_e2e", api.scope(route)))
        expected = {"GET /orders": 200, "GET /prices": 200, "POST /orders": 202}.get(route, 404)
        assert answer.status_code == expected, (route, answer.text)
        assert answer.headers["Content-Type"] == f"application/{'problem+json' if expected == 404 else 'json'}"


def test_a_customer_cannot_refund_and_the_staff_can(api: Api, shop: DeployedShop) -> None:
    """403 without the scope, also for one's own order, whatever else the token allows; then 202 for the staff's."""
    order_id = shop.placed("pm_card_visa", "PAID")
    for scope in ("", "openid", "onecharge/refunds", "onecharge"):
        refused = api.send("POST /orders/{order_id}/refunds", api.issuer.token("cus_e2e", scope), order_id)
        assert (refused.status_code, refused.text) == (403, '{"message": "Forbidden"}')
    assert shop.get(order_id).json()["refunds"] == []
    assert shop.refund(order_id, amount=1).status_code == 202


def test_no_log_has_a_token(shop: DeployedShop) -> None:
    """Neither of whoever got in nor of whoever did not."""
    token = shop.stack.issuer.token("cus_e2e", "openid")
    orders = f"{shop.stack.api_url}/orders"
    assert signed_in(token).get(orders, timeout=PATIENCE_SECONDS).status_code == 200
    assert signed_in(token).delete(orders, timeout=PATIENCE_SECONDS).status_code == 404
    log = shop.log()
    assert token not in log
    assert token.split(".")[1] not in log
