"""One try of a request to Stripe: its result when the connection, the proxy or the certificate fails.

The SDK's own RequestsClient is the model: both are given the same.
"""

import gzip
import json
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from socket import socket
from threading import Barrier
from typing import Any

import pytest
import stripe
import urllib3
from cryptography import x509

from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_metrics import NO_ANSWER
from onecharge.payments.stripe_responses import ResponseKind
from onecharge.payments.stripe_transport import StripeTransport
from onecharge.runtime.aws import BATCH_SIZE
from onecharge.runtime.metrics import Metric
from testing.builders import BOUNDS, REQUEST
from testing.certificates import LOCALHOST, https_server
from testing.silent import SILENT
from testing.stripe_answers import Break, StripeAnswers

CREATE = "/v1/payment_intents"
INTENT = {
    "id": "pi_1",
    "object": "payment_intent",
    "amount": 1,
    "currency": "eur",
    "status": "requires_payment_method",
    "metadata": {"order_id": REQUEST.order_id, "generation": "0"},
}
PATIENT, IMPATIENT, IN_BETWEEN = 30.0, 0.5, 3.0
"""Seconds. Nothing waits for the first but a machine that is busy. Within the last a busy one answers, too."""
Client = Callable[..., stripe.StripeClient]


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy of this machine's, and no pause of the SDK between its tries."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr("stripe.HTTPClient.INITIAL_DELAY", 0)
    monkeypatch.setattr("stripe.HTTPClient.MAX_DELAY", 0)


@pytest.fixture
def answers() -> Iterator[StripeAnswers]:
    with StripeAnswers() as server:
        yield server


def transport(
    api_base: str, counted: list[str] | None = None, *, seconds: float = PATIENT, **settings: Any
) -> StripeTransport:
    return StripeTransport(
        api_base,
        timeout=urllib3.Timeout(connect=seconds, read=seconds),
        count=SILENT if counted is None else counted.append,
        is_key_replaced=settings.pop("is_key_replaced", lambda: False),
        **settings,
    )


def over(http_client: stripe.HTTPClient, api_base: str) -> stripe.StripeClient:
    return stripe.StripeClient(
        "sk_test_x", base_addresses={"api": api_base}, max_network_retries=1, http_client=http_client
    )


def ours(api_base: str, seconds: float = PATIENT) -> stripe.StripeClient:
    return over(transport(api_base, seconds=seconds), api_base)


def the_model(api_base: str, seconds: float = PATIENT) -> stripe.StripeClient:
    return over(stripe.RequestsClient(timeout=seconds), api_base)


def patience(broken: Break, impatient: float = IMPATIENT) -> float:
    return impatient if broken in (Break.SILENT, Break.STALLED) else PATIENT


def create(client: stripe.StripeClient) -> str:
    """The id, or how it failed."""
    try:
        return client.v1.payment_intents.create({"amount": 1, "currency": "eur"}, {"idempotency_key": "k"}).id
    except stripe.StripeError as error:
        should_retry = getattr(error, "should_retry", None)
        return f"{type(error).__name__}, {error.http_status}, should_retry={should_retry}"


# ---------------------------------------------------------------- connections that fail


@pytest.mark.parametrize("client", [ours, the_model])
@pytest.mark.parametrize(
    ("broken", "tries", "result"),
    [
        (Break.BEFORE, 2, "APIConnectionError, None, should_retry=True"),
        (Break.RESET, 2, "APIConnectionError, None, should_retry=True"),
        (Break.SILENT, 2, "APIConnectionError, None, should_retry=True"),
        (Break.STALLED, 2, "APIConnectionError, None, should_retry=True"),
        (Break.WITHIN, 1, "APIConnectionError, None, should_retry=False"),
    ],
)
def test_a_request_is_tried_again_as_the_sdk_would(
    answers: StripeAnswers, client: Client, broken: Break, tries: int, result: str
) -> None:
    """Once, with the same body under the same idempotency key; not after a body that broke off."""
    answers.post(CREATE, json=INTENT, breaks=broken)
    assert create(client(answers.url, patience(broken))) == result
    calls = answers.await_calls(tries)
    assert [(call.key, call.form) for call in calls] == [("k", {"amount": "1", "currency": "eur"})] * tries


@pytest.mark.parametrize("client", [ours, the_model])
@pytest.mark.parametrize("broken", [Break.BEFORE, Break.RESET, Break.SILENT])
def test_the_second_try_is_answered(answers: StripeAnswers, client: Client, broken: Break) -> None:
    """The caller does not notice the first one."""
    answers.post(CREATE, json=INTENT, breaks=broken)
    answers.post(CREATE, json=INTENT)
    assert create(client(answers.url, patience(broken, IN_BETWEEN))) == "pi_1"


@pytest.mark.parametrize("client", [ours, the_model])
@pytest.mark.parametrize("host", ["127.0.0.1", "stripe.invalid"])
def test_nobody_listens_or_has_that_name(client: Client, host: str) -> None:
    """Nothing was sent, so it may be tried again."""
    with socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    assert create(client(f"http://{host}:{port}")) == "APIConnectionError, None, should_retry=True"


@pytest.mark.parametrize("client", [ours, the_model])
def test_a_connection_that_was_closed_meanwhile_costs_no_try(answers: StripeAnswers, client: Client) -> None:
    """As of a function that was frozen: the next request opens another one, and is sent once."""
    answers.post(CREATE, json=INTENT, closes_after=True)
    reused = client(answers.url)
    first = create(reused)
    answers.await_closed(1)
    assert [first, create(reused)] == ["pi_1", "pi_1"]
    assert (len(answers.calls), answers.connections) == (2, 2)


def test_each_thread_of_a_batch_has_a_connection_that_it_keeps(answers: StripeAnswers) -> None:
    """Batch after batch, with all records at once."""
    answers.post(CREATE, json=INTENT)
    client, together = ours(answers.url), Barrier(BATCH_SIZE)

    def one(_: int) -> str:
        together.wait(60)
        return create(client)

    with ThreadPoolExecutor(BATCH_SIZE) as threads:
        assert list(threads.map(one, range(5 * BATCH_SIZE))) == ["pi_1"] * 5 * BATCH_SIZE
    assert answers.connections <= BATCH_SIZE


# ---------------------------------------------------------------- responses that are not Stripe's, or unusual


def test_a_redirect_is_not_followed(answers: StripeAnswers) -> None:
    """It is no answer of Stripe's, and the API key goes to no other host."""
    with StripeAnswers() as elsewhere:
        answers.post(CREATE, status=307, headers={"Location": elsewhere.url + CREATE})
        elsewhere.post(CREATE, json=INTENT)
        response = StripeGateway(stripe_client("sk_test_x", api_base=answers.url, bounds=BOUNDS)).create(REQUEST, 0)
        assert response.failure is not None
        assert response.failure.kind is ResponseKind.NO_ANSWER
        assert (len(answers.calls), elsewhere.calls) == (1, [])


def test_an_informational_response_is_no_answer(answers: StripeAnswers, counted: list[Metric]) -> None:
    """The next request does not read the answer that is still to come: the connection is closed, and the try is
    repeated under its key on another one."""
    for intent, broken in (("pi_1", Break.INFORMED), ("pi_1", None), ("pi_2", None)):
        answers.post(CREATE, json={**INTENT, "id": intent}, breaks=broken)
    client = over(transport(answers.url, counted), answers.url)  # type: ignore[arg-type]
    assert [create(client), create(client)] == ["pi_1", "pi_2"]
    assert (len(answers.calls), answers.connections) == (3, 2)
    assert [each.dimensions[1] for each in counted] == [{"status": NO_ANSWER}, {"status": "2xx"}, {"status": "2xx"}]


@pytest.mark.parametrize("client", [ours, the_model])
@pytest.mark.parametrize(
    ("body", "result"),
    [
        (gzip.compress(json.dumps(INTENT).encode()), "pi_1"),
        (gzip.compress(json.dumps(INTENT).encode())[:-20], "APIError, 200, should_retry=None"),
        (b"not gzip", "APIConnectionError, None, should_retry=False"),
    ],
    ids=["whole", "cut off", "nonsense"],
)
def test_a_compressed_body(answers: StripeAnswers, client: Client, body: bytes, result: str) -> None:
    """Whole, cut off by whoever compressed it, or nonsense: the latter two are no answers, and not tried again."""
    answers.post(CREATE, body=body, headers={"Content-Encoding": "gzip"})
    assert create(client(answers.url)) == result
    assert len(answers.calls) == 1


@pytest.mark.parametrize(
    ("compress", "result"),
    [(gzip.compress, ["pi_1"]), (lambda _: b"not gzip", None)],
    ids=["whole", "nonsense"],
)
@pytest.mark.parametrize("client", [ours, the_model])
def test_what_is_read_is_asked_for_compressed(
    answers: StripeAnswers, client: Client, compress: Callable[[bytes], bytes], result: list[str] | None
) -> None:
    """A page of a list is a tenth as long; one that cannot be decoded is no answer, and not asked for again."""
    page = json.dumps({"object": "list", "data": [INTENT], "has_more": False}).encode()
    answers.get(CREATE, body=compress(page), headers={"Content-Encoding": "gzip"})
    read: list[str] | None
    try:
        read = [each.id for each in client(answers.url).v1.payment_intents.list().data]
    except stripe.APIConnectionError:
        read = None
    assert read == result
    [call] = answers.calls
    assert "gzip" in call.headers["Accept-Encoding"]


@pytest.mark.parametrize(
    ("status", "headers", "tries"),
    [
        (409, {}, 2),
        (500, {}, 2),
        (503, {"Stripe-Should-Retry": "false"}, 1),
        (429, {"stripe-should-retry": "true"}, 2),
        (429, {}, 1),
        (402, {}, 1),
    ],
)
@pytest.mark.parametrize("client", [ours, the_model])
def test_stripe_says_whether_to_try_again(
    answers: StripeAnswers, client: Client, status: int, headers: dict[str, str], tries: int
) -> None:
    """In a header, whose name may be written in any case; otherwise its status decides."""
    answers.post(CREATE, status=status, headers=headers, json={"error": {"type": "api_error", "message": "…"}})
    create(client(answers.url))
    assert len(answers.calls) == tries


# ---------------------------------------------------------------- what is counted, and the key


@pytest.fixture
def counted() -> list[Any]:
    return []


@pytest.mark.parametrize(("code", "status"), [(200, "2xx"), (401, "401"), (429, "429"), (404, "4xx"), (503, "5xx")])
def test_a_response_is_counted_by_its_status_and_its_endpoint(
    answers: StripeAnswers, counted: list[Metric], code: int, status: str
) -> None:
    """With Stripe's id of the request if it failed, by which its support finds it; and without the object's own id."""
    answers.get(f"{CREATE}/pi_1", status=code, headers={"Request-Id": "req_1"})
    transport(answers.url, counted).request("get", f"{answers.url}{CREATE}/pi_1", {})  # type: ignore[arg-type]
    [metric] = counted
    assert (metric, metric.about) == ("StripeSeconds", {} if code == 200 else {"stripe_request_id": "req_1"})
    assert metric.dimensions == ({"endpoint": "GET /v1/payment_intents/{id}"}, {"status": status})
    assert 0 < metric.value < 5


def test_each_try_without_a_response_is_counted(answers: StripeAnswers, counted: list[Metric]) -> None:
    """The SDK's second one, too."""
    answers.post(CREATE, breaks=Break.BEFORE)
    create(over(transport(answers.url, counted), answers.url))  # type: ignore[arg-type]
    assert [each.dimensions[1] for each in counted] == [{"status": NO_ANSWER}] * 2


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize("status", [401, 403, 402])
def test_a_key_that_was_replaced_is_recognized(answers: StripeAnswers, status: int, replaced: bool) -> None:
    """If Stripe refuses it: only then is the secret read anew."""
    asked: list[str] = []

    def is_replaced(key: str) -> bool:
        asked.append(key)
        return replaced

    answers.post(CREATE, status=status, json={"error": {"type": "invalid_request_error", "message": "…"}})
    client = stripe_client("sk_test_x", api_base=answers.url, bounds=BOUNDS, is_replaced=is_replaced)
    failure = StripeGateway(client).create(REQUEST, 0).failure
    assert failure is not None
    assert (failure.kind is ResponseKind.KEY_REPLACED) is (replaced and status != 402)
    assert asked == (["sk_test_x"] if status != 402 else [])


# ---------------------------------------------------------------- certificates


@pytest.fixture
def https(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URL of a server with a certificate for these names, and the certificate's file."""
    with https_server(tmp_path, *request.param, body=json.dumps(INTENT).encode()) as server:
        yield server


@pytest.mark.parametrize("https", [[LOCALHOST]], indirect=True)
@pytest.mark.parametrize("client", [ours, the_model])
def test_a_certificate_that_stripes_bundle_does_not_know_is_refused(
    https: tuple[str, str], client: Client, counted: list[Metric]
) -> None:
    """And not tried again: somebody may intercept the connection."""
    url, _ = https
    assert create(client(url)) == "APIConnectionError, None, should_retry=False"
    create(over(transport(url, counted), url))  # type: ignore[arg-type]
    assert len(counted) == 1


@pytest.mark.parametrize(
    ("https", "result"),
    [([LOCALHOST], "pi_1"), ([x509.DNSName("other")], "APIConnectionError, None, should_retry=False")],
    indirect=["https"],
)
def test_a_certificate_of_the_bundle_is_good_for_its_own_host(https: tuple[str, str], result: str) -> None:
    """A trusted certificate of another host is refused like an unknown one."""
    url, bundle = https
    assert create(over(transport(url, ca_bundle=bundle), url)) == result


def test_the_bundle_is_stripes_own() -> None:
    """Not the system's, which an image may lack, and whose every authority could vouch for Stripe."""
    client = transport("https://api.stripe.com")
    context = client._connections.connection_pool_kw["ssl_context"]
    bundled = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bundled.load_verify_locations(stripe.ca_bundle_path)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.cert_store_stats() == bundled.cert_store_stats()


# ---------------------------------------------------------------- proxies


@pytest.mark.parametrize("client", [ours, the_model])
def test_the_proxy_of_the_environment_is_used(
    answers: StripeAnswers, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its password, if it has one."""
    monkeypatch.setenv("http_proxy", answers.url.replace("//", "//" + "user:p%40ss" + "@"))
    answers.post(CREATE, json=INTENT)
    assert create(client("http://stripe.invalid")) == "pi_1"
    [call] = answers.calls
    assert call.path_url == f"http://stripe.invalid{CREATE}"
    assert call.headers["Proxy-Authorization"] == "Basic dXNlcjpwQHNz"


@pytest.mark.parametrize("client", [ours, the_model])
def test_a_host_can_be_excepted_from_the_proxy(
    answers: StripeAnswers, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By no_proxy."""
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    answers.post(CREATE, json=INTENT)
    assert create(client(answers.url)) == "pi_1"


@pytest.mark.parametrize("client", [ours, the_model])
def test_a_proxy_that_is_not_there_may_be_tried_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was sent."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    assert create(client("https://stripe.invalid")) == "APIConnectionError, None, should_retry=True"


# ---------------------------------------------------------------- its timeouts


def test_the_timeouts_are_those_of_the_bounds(answers: StripeAnswers) -> None:
    """As for the time until the response, or its next byte."""
    bounds = replace(BOUNDS, stripe_connect_timeout_seconds=PATIENT, stripe_read_timeout_seconds=IN_BETWEEN)
    answers.post(CREATE, json=INTENT, breaks=Break.SILENT)
    answers.post(CREATE, json=INTENT)
    made: list[str] = []
    client = stripe_client("sk_test_x", api_base=answers.url, bounds=bounds, count=made.append)
    assert StripeGateway(client).create(REQUEST, 0).failure is None
    [first, _] = made
    assert isinstance(first, Metric)
    assert IN_BETWEEN <= first.value < PATIENT
