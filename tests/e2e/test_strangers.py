"""Strangers on the deployed stack: on every route whoever has no right to be there is refused, and sees nothing.

The routes are those of the deployed API, so that a new one is tested without being named here.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
import requests

from local.issuer import Issuer, running_issuer
from tests.support.deployed_shop import PATIENCE_SECONDS, DeployedShop
from tests.support.orders_api import UNKNOWN

BODIES = {
    "POST /orders/{order_id}/payments": {"payment_method": "pm_a"},
    "POST /orders/{order_id}/refunds": {"amount": 1},
}
REFUND = "POST /orders/{order_id}/refunds"


def send(shop: DeployedShop, route: str, token: str | None, order_id: str = UNKNOWN) -> requests.Response:
    """With a body that the route accepts from whoever may send it."""
    method, path = route.split(" ")
    headers = {"Idempotency-Key": str(uuid4())} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    body = shop.body() if route == "POST /orders" else BODIES.get(route)
    url = shop.stack.api_url + path.replace("{order_id}", order_id)
    return requests.request(method, url, json=body, headers=headers, timeout=PATIENCE_SECONDS)


def strangers(right: Issuer, other: Issuer, claims: dict[str, Any]) -> dict[str, str | None]:
    """Tokens that open nothing; the claims are those of a token that would."""
    now, (header, payload, signature) = int(time.time()), right.signed(claims).split(".")
    public_key = requests.get(f"{right.url}/jwks.json", timeout=PATIENCE_SECONDS).text
    return {
        "no token": None,
        "no JWT": "garbage",
        "expired": right.signed({**claims, "exp": now - 1}),
        "not yet valid": right.signed({**claims, "nbf": now + 600}),
        "another audience": right.signed({**claims, "aud": "another-api"}),
        "no audience": right.signed({name: each for name, each in claims.items() if name != "aud"}),
        "another issuer": other.signed({**claims, "iss": other.url}),
        "another issuer's key": other.signed(claims),
        "a key that nobody has": replace(right, key_id="unknown").signed(claims),
        "no signature": f"{header}.{payload}.",
        "a payload of another token": f"{header}.{right.signed({**claims, 'sub': 'cus_2'}).split('.')[1]}.{signature}",
        "alg none": jwt.encode(claims, "", algorithm="none", headers={"kid": right.key_id}),
        # The public key as the secret of an HMAC: a verifier that trusts the header's alg would accept it.
        "HS256": jwt.encode(claims, public_key * 2, algorithm="HS256", headers={"kid": right.key_id}),
    }


def test_a_stranger_gets_in_nowhere(shop: DeployedShop, tmp_path: Path) -> None:
    """401 on every route but Stripe's, known or not, for a known order as for an unknown one: all answers are the same.
    With the token that they lack the same requests are served, but a refund: 403 without the staff's scope."""
    api_id = shop.stack.api_url.rstrip("/").split("/")[-2]
    routes = shop.stack.aws.client("apigatewayv2").get_routes(ApiId=api_id)["Items"]
    guarded = {each["RouteKey"] for each in routes if each["AuthorizationType"] != "NONE"}
    assert {each["RouteKey"] for each in routes} - guarded <= {"POST /stripe/events"}
    assert {*BODIES, "POST /orders", "GET /orders", "GET /orders/{order_id}"} <= guarded
    order_id, stored, issuer = shop.placed("pm_card_visa", "PAID"), shop.stored_orders(), shop.stack.issuer
    with running_issuer(tmp_path) as other:
        tokens = strangers(issuer, other, issuer.claims("cus_e2e", scope="openid onecharge/refund"))
    answers = {
        (route, name, each): send(shop, route, token, each)
        for route in sorted(guarded)
        for name, token in tokens.items()
        for each in (order_id, UNKNOWN)
    }
    seen = {which: (answer.status_code, answer.text) for which, answer in answers.items()}
    assert {each: seen[each] for each in seen if seen[each] != (401, '{"message": "Unauthorized"}')} == {}
    assert shop.stored_orders() == stored
    served = {"GET /orders": 200, "GET /prices": 200, "POST /orders": 202, REFUND: 403}
    for route in guarded:
        answer = send(shop, route, issuer.token("cus_e2e", "openid onecharge/refunds"))
        assert answer.status_code == served.get(route, 404), (route, answer.text)
    assert send(shop, REFUND, issuer.token("cus_e2e", "onecharge"), order_id).text == '{"message": "Forbidden"}'
    assert shop.refund(order_id, amount=1).status_code == 202


def test_no_log_has_a_token(shop: DeployedShop) -> None:
    """Neither of whoever got in nor of whoever did not."""
    token = shop.stack.issuer.token("cus_e2e", "openid")
    assert [send(shop, f"{method} /orders", token).status_code for method in ("GET", "DELETE")] == [200, 404]
    log = shop.log()
    assert token not in log
    assert token.split(".")[1] not in log
