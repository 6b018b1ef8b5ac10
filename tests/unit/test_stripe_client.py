"""Stripe's client: time-outs, the SDK's one retry, a metric for each try, and the account's API key as it is now.

AWS is moto's, and `responses` answers what is sent to Stripe.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
import requests
import stripe
from requests import PreparedRequest
from responses import RequestsMock
from responses.matchers import header_matcher

from onecharge.payments.stripe_client import STRIPE_VERSION, StripeAccount, stripe_client
from onecharge.payments.stripe_metrics import endpoint_of, status_of, stripe_request
from onecharge.payments.stripe_responses import ResponseKind, classify
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.secrets import Secret, SecretUnavailable
from tests.shop.builders import BOUNDS, INTENTS, ORDER_ID, SHOP, STRIPE_API, payment, stripe_error, stripe_intent

CREATE: Any = {"amount": 1099, "currency": "eur"}


@pytest.fixture
def counted() -> list[Any]:
    """The metrics of the requests."""
    return []


@pytest.fixture
def client(http: RequestsMock, counted: list[Any]) -> stripe.StripeClient:
    return stripe_client("sk_test_x", api_base=STRIPE_API, bounds=BOUNDS, count=counted.append)


def create(client: stripe.StripeClient) -> stripe.PaymentIntent:
    return client.v1.payment_intents.create(CREATE, {"idempotency_key": "key"})


# ---------------------------------------------------------------- each try


def test_every_try_has_the_bounds_timeouts_and_the_api_version(client: stripe.StripeClient, http: RequestsMock) -> None:
    """Connect and read; Stripe's certificate is verified. An upgrade of the SDK does not change the API's version."""
    http.post(INTENTS, json=stripe_intent())
    create(client)
    [call] = http.calls
    given = call.request.req_kwargs  # type: ignore[attr-defined]  # What the HTTP adapter was given.
    assert given["timeout"] == (BOUNDS.stripe_connect_timeout_seconds, BOUNDS.stripe_read_timeout_seconds)
    assert str(given["verify"]).endswith("ca-certificates.crt")
    assert call.request.headers["Stripe-Version"] == STRIPE_VERSION


def test_an_unanswered_request_is_retried_once_under_its_key(client: stripe.StripeClient, http: RequestsMock) -> None:
    """The second try is the same request. After it the caller learns that there is no answer."""
    http.post(INTENTS, body=requests.ConnectionError("closed"))
    with pytest.raises(stripe.APIConnectionError):
        create(client)
    first, second = (call.request for call in http.calls)
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"] == "key"
    assert first.body == second.body


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


@pytest.mark.parametrize(
    ("url", "sent", "received", "about"),
    [
        ("/v1/payment_intents", {"Idempotency-Key": payment().create_key(SHOP, 0)}, {}, {"order_id": ORDER_ID}),
        (
            "/v1/payment_intents/pi_1/confirm",
            {},
            {"idempotent-replayed": "true"},
            {"replayed": "true", "stripe_object": "pi_1"},
        ),
    ],
    ids=["by its key", "by its path, a replay"],
)
def test_a_request_names_what_it_is_about(url: str, sent: Any, received: Any, about: dict[str, str]) -> None:
    """So the log has every request of an order, each with its key, and says which was replayed."""
    metric = stripe_request("POST", f"https://api.stripe.com{url}", "2xx", 0.1, sent=sent, received=received)
    assert {name: value for name, value in metric.about.items() if name != "idempotency_key"} == about


def test_threads_share_the_client_and_no_session(
    client: stripe.StripeClient, http: RequestsMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session's connections are used again, and by one thread only."""
    sessions: list[requests.Session] = []

    class Counted(requests.Session):
        def __init__(self) -> None:
            super().__init__()
            sessions.append(self)

    monkeypatch.setattr(requests, "Session", Counted)
    http.post(INTENTS, json=stripe_intent())
    both = Barrier(2)

    def create_twice() -> None:
        both.wait()
        create(client)
        create(client)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(create_twice) for _ in range(2)]:
            done.result()
    assert len(sessions) == 2


@pytest.mark.parametrize(
    ("method", "path", "endpoint"),
    [
        ("POST", "/v1/payment_intents", "POST /v1/payment_intents"),
        ("POST", "/v1/payment_intents/pi_1/confirm", "POST /v1/payment_intents/{id}/confirm"),
        ("GET", "/v1/events?limit=100", "GET /v1/events"),
        ("GET", "/v1/refunds/re_1", "GET /v1/refunds/{id}"),
    ],
)
def test_an_endpoint_has_no_id_and_no_query(method: str, path: str, endpoint: str) -> None:
    """A metric for each order would cost $0.30 each."""
    assert endpoint_of(method, f"{STRIPE_API}{path}") == endpoint


def test_a_status_with_an_alarm_is_counted_by_itself() -> None:
    """The others are counted by their class."""
    assert [status_of(code) for code in (200, 402, 403, 409, 404, 500)] == ["2xx", "402", "403", "409", "4xx", "5xx"]


# ---------------------------------------------------------------- the account's API key


class Key:
    """The secret with the API key, and the account that it belongs to."""

    def __init__(self) -> None:
        self._secrets = boto3.client("secretsmanager")
        self._arn = self._secrets.create_secret(Name="stripe", SecretString="sk_test_first")["ARN"]
        secret = Secret(self._secrets, self._arn)
        self.account = StripeAccount(secret, api_base=STRIPE_API, bounds=TimeBounds.of(30))
        self.live_account = StripeAccount(secret, api_base=STRIPE_API, bounds=TimeBounds.of(30), must_be_live=True)

    def put(self, value: str) -> None:
        self._secrets.put_secret_value(SecretId=self._arn, SecretString=value)


@pytest.fixture
def key(aws: None) -> Key:
    return Key()


def answer(http: RequestsMock, api_key: str, status: int, body: Mapping[str, Any]) -> None:
    """Answer all retrieves with this API key."""
    match = [header_matcher({"Authorization": f"Bearer {api_key}"})]
    http.get(f"{INTENTS}/pi_1", status=status, json=body, match=match)


def why_not_claimed(client: stripe.StripeClient) -> ResponseKind:
    with pytest.raises(stripe.StripeError) as refused:
        client.v1.payment_intents.retrieve("pi_1")
    return classify(refused.value).kind


@pytest.mark.parametrize("status", [401, 403])
def test_the_refusal_of_a_replaced_key_is_marked(key: Key, http: RequestsMock, status: int) -> None:
    """The secret holds another key by then: no alarm, and the next delivery uses it."""
    answer(http, "sk_test_first", status, stripe_error())
    answer(http, "sk_test_second", 200, stripe_intent())
    rolled = key.account.client()
    key.put("sk_test_second")
    # Ten records of a batch have the old client; nine are refused after the secret was read again.
    assert {why_not_claimed(rolled) for _ in range(10)} == {ResponseKind.API_KEY_REPLACED}
    assert key.account.client().v1.payment_intents.retrieve("pi_1").id == "pi_1"


@pytest.mark.parametrize("status", [401, 403])
def test_the_refusal_of_the_current_key_is_not_marked(key: Key, http: RequestsMock, status: int) -> None:
    """The secret is read again, and holds the same key: a person has to see it."""
    answer(http, "sk_test_first", status, stripe_error())
    client = key.account.client()
    assert {why_not_claimed(client) for _ in range(20)} == {ResponseKind.ACCOUNT}


@pytest.mark.parametrize(
    "value",
    ["sk_test_first\nsk_test_second", "sk_test first", "sk_test_first\r\n\tx", "{'key': 'sk_test_x'}", " ", "sk_é"],
)
def test_a_secret_that_is_not_an_api_key_is_not_sent(key: Key, value: str) -> None:
    """The error reveals nothing of it: a header's error would reveal all of it."""
    key.put(value)
    for ask in (key.account.client, key.account.is_live):
        with pytest.raises(SecretUnavailable, match=r"^not an API key$") as raised:
            ask()
        assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("value", "is_live"), [("sk_live_x", True), (" rk_live_x\n", True), ("rk_test_x", False), ("sk_test_x", False)]
)
def test_a_key_names_its_mode(key: Key, value: str, *, is_live: bool) -> None:
    """Secret and restricted keys do, also with white space around them (Stripe documentation, "API keys")."""
    key.put(value)
    assert key.account.is_live() is is_live


@pytest.mark.parametrize(("value", "is_taken"), [("sk_test_x", False), ("rk_live_x", True)])
def test_a_live_shop_takes_a_live_key_alone(key: Key, value: str, *, is_taken: bool) -> None:
    """A test card would pay an order. Until the key is replaced, each message backs off, with an alarm."""
    key.put(value)
    with nullcontext() if is_taken else pytest.raises(SecretUnavailable, match="live mode"):
        key.live_account.client()
