"""Stripe's client: time-outs, the SDK's one retry, a metric for each try, and the account's API key as it is now.

AWS is moto's, and `responses` answers what is sent to Stripe.
"""

import json
import re
from contextlib import nullcontext
from time import time
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
import requests
import stripe
from requests import PreparedRequest
from responses import RequestsMock

from onecharge.payments.payment_intents import create_key
from onecharge.payments.stripe_client import STRIPE_VERSION, StripeAccount, stripe_client, stripe_request
from onecharge.runtime import secrets
from onecharge.runtime.alarms import Cause
from onecharge.runtime.secrets import Secret, SecretUnavailable
from tests.shop.builders import BOUNDS, INTENTS, ORDER_ID, SHOP, STRIPE_API, payment, stripe_intent
from tests.support.harness import PROJECT


@pytest.fixture
def counted() -> list[Any]:
    """The metrics of the requests."""
    return []


@pytest.fixture
def client(http: RequestsMock, counted: list[Any]) -> stripe.StripeClient:
    return stripe_client("sk_test_x", api_base=STRIPE_API, bounds=BOUNDS, count=counted.append)


def create(client: stripe.StripeClient) -> stripe.PaymentIntent:
    return client.v1.payment_intents.create({"amount": 1099, "currency": "eur"}, {"idempotency_key": "key"})


def test_an_unanswered_request_is_retried_once_under_its_key(client: stripe.StripeClient, http: RequestsMock) -> None:
    """The second try is the same request, with the same timeouts, and Stripe's certificate is verified. After it the
    caller learns that there is no answer. An upgrade of the SDK does not change the API's version."""
    http.post(INTENTS, body=requests.ConnectionError("closed"))
    with pytest.raises(stripe.APIConnectionError):
        create(client)
    first, second = (call.request for call in http.calls)
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"] == "key"
    assert first.body == second.body
    given = first.req_kwargs  # type: ignore[attr-defined]  # What the HTTP adapter was given.
    assert given["timeout"] == BOUNDS.stripe_timeouts
    assert str(given["verify"]).endswith("ca-certificates.crt")
    assert first.headers["Stripe-Version"] == STRIPE_VERSION


def test_an_informational_response_is_no_answer(client: stripe.StripeClient, http: RequestsMock) -> None:
    """The real answer is still to come on its connection: it is closed, and the request sent again under its key."""
    http.post(INTENTS, status=103)
    http.post(INTENTS, json=stripe_intent())
    assert (create(client).id, len(http.calls)) == ("pi_1", 2)


def test_every_try_is_counted(
    client: stripe.StripeClient, http: RequestsMock, counted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its endpoint, status and seconds, its key, and Stripe's id of the request; also if it had no answer."""
    clock: Any = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("onecharge.payments.stripe_client.time", clock)

    def after(seconds: float, answer: Any) -> Any:
        def answered(_: PreparedRequest) -> Any:
            clock.now += seconds
            return answer

        return answered

    http.add_callback("POST", INTENTS, after(8.25, requests.ReadTimeout()))
    http.add_callback("POST", INTENTS, after(0.3, (200, {"Request-Id": "req_1"}, json.dumps(stripe_intent()))))
    create(client)
    assert counted == ["StripeSeconds"] * 2
    endpoint = {"endpoint": "POST /v1/payment_intents"}
    assert [(each.dimensions, each.value, each.about) for each in counted] == [
        ((endpoint, {"status": "none"}), 8.25, {"idempotency_key": "key"}),
        ((endpoint, {"status": "2xx"}), 0.3, {"idempotency_key": "key", "stripe_request_id": "req_1"}),
    ]


KEY = create_key(payment(), SHOP, 0)


@pytest.mark.parametrize(
    ("path", "code", "endpoint", "status", "about"),
    [
        ("", 402, "", "402", {"order_id": ORDER_ID, "idempotency_key": KEY}),
        ("?limit=100", 404, "", "4xx", {"order_id": ORDER_ID, "idempotency_key": KEY}),
        ("/pi_1/confirm", 503, "/{id}/confirm", "5xx", {"replayed": "true", "stripe_object": "pi_1"}),
    ],
)
def test_a_request_names_what_it_is_about(
    path: str, code: int, endpoint: str, status: str, about: dict[str, str]
) -> None:
    """So the log has every request of an order. The metric's endpoint has no id and no query: each value is billed."""
    sent = {"Idempotency-Key": KEY} if "order_id" in about else {}
    received = {"idempotent-replayed": "true"} if "replayed" in about else {}
    metric = stripe_request("POST", f"{INTENTS}{path}", code, 0.1, sent=sent, received=received)
    assert metric.about == about
    assert metric.dimensions == ({"endpoint": f"POST /v1/payment_intents{endpoint}"}, {"status": status})


# ---------------------------------------------------------------- the account's API key


@pytest.fixture
def secret(aws: None) -> Secret:
    secretsmanager = boto3.client("secretsmanager")
    return Secret(secretsmanager, secretsmanager.create_secret(Name="stripe", SecretString="sk_test_first")["ARN"])


def put(value: str) -> None:
    boto3.client("secretsmanager").put_secret_value(SecretId="stripe", SecretString=value)


def test_a_rotated_key_is_used_within_minutes(secret: Secret, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process outlives the rotation; until then the client is the same one."""
    account = StripeAccount(secret, api_base=STRIPE_API, bounds=BOUNDS)
    first = account.client()
    put("sk_test_second")
    assert account.client() is first
    later = time() + secrets.MAX_AGE_SECONDS
    monkeypatch.setattr(secrets, "time", lambda: later)
    assert account.client() is not first


@pytest.mark.parametrize(
    "value",
    ["sk_test_first\nsk_test_second", "sk_test first", "sk_test_first\r\n\tx", "{'key': 'sk_test_x'}", " ", "sk_é"],
)
def test_a_secret_that_is_not_an_api_key_is_not_sent(secret: Secret, value: str) -> None:
    """The error reveals nothing of it: a header's error would reveal all of it. It is an alarm of its own cause."""
    put(value)
    counted: list[Any] = []
    account = StripeAccount(secret, api_base=STRIPE_API, bounds=BOUNDS, count=counted.append)
    for ask in (account.client, account.is_live):
        with pytest.raises(SecretUnavailable, match=r"^not an API key$") as raised:
            ask()
        assert raised.value.__cause__ is None
    assert [each.cause for each in counted] == [Cause.STRIPE_ACCOUNT]


@pytest.mark.parametrize(
    ("value", "is_live"), [("sk_live_x", True), (" rk_live_x\n", True), ("rk_test_x", False), ("sk_test_x", False)]
)
def test_a_live_shop_takes_a_live_key_alone(secret: Secret, value: str, *, is_live: bool) -> None:
    """Secret and restricted keys name their mode (Stripe documentation, "API keys"). A test card would pay an order:
    until the key is replaced, each message backs off, with an alarm."""
    put(value)
    assert StripeAccount(secret, api_base=STRIPE_API, bounds=BOUNDS).is_live() is is_live
    counted: list[str] = []
    account = StripeAccount(secret, api_base=STRIPE_API, bounds=BOUNDS, must_be_live=True, count=counted.append)
    with nullcontext() if is_live else pytest.raises(SecretUnavailable, match="live mode"):
        account.client()
    assert counted == ([] if is_live else ["Alarm"])


def test_the_guide_lists_the_permissions_that_are_used() -> None:
    """One restricted key for all functions, with what they request and nothing else. Whoever may write may read."""
    code = "".join(each.read_text() for each in (PROJECT / "shared/onecharge/payments").glob("*.py"))
    words = {"payment_intents": "PaymentIntents", "refunds": "Charges and Refunds"}
    used = dict[str, str]()
    for resource, method in sorted(re.findall(r"client\.v1\.(\w+)\.(\w+)\(", code)):
        name = words.get(resource, resource.title())
        used[name] = "Read" if method in ("list", "retrieve") and used.get(name) != "Write" else "Write"
    listed = re.findall(r"(?m)^\| ([\w ]+): (Read|Write) \|", (PROJECT / "docs/guides/deploy.md").read_text())
    assert dict(listed) == used
