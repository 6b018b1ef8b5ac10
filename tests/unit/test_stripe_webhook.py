"""stripe_webhook: what Stripe has signed is applied, or sent again; nothing else is.

What an event changes is in payments/test_sync.py.
"""

import base64
import json
import time
from typing import Any

import boto3
import pytest

from local.given_stripe import STRIPE_WEBHOOK_SECRET
from local.samples import SAMPLES
from onecharge.contract.states import PaymentState
from stripe_standin.webhook_endpoints import signature
from stripe_webhook.app import StripeWebhookParts
from tests.shop.builders import T0
from tests.shop.endpoint import Endpoint, Event, body_of, event_of
from tests.shop.scripted_stripe import NO_ANSWER, WRONG_KEY
from tests.shop.shop import order_id
from tests.support.harness import LambdaContext, Log, Sample, load_template, number_of


@pytest.fixture
def endpoint(log: Log, sample: Sample) -> Endpoint:
    return Endpoint(log, sample=sample)


def dispute(payment_intent: str | None) -> Event:
    thing: dict[str, Any] = {"id": "dp_1", "payment_intent": payment_intent, "metadata": {}, "status": "needs_response"}
    return event_of("charge.dispute.created", "dispute", **thing)


# ---------------------------------------------------------------- a PaymentIntent's event


OF_NO_INTEREST = {
    "another type": event_of("customer.created", "customer", id="cus_1"),
    "an event without its object": {"id": "evt_1", "object": "v2.core.event", "type": "v1.payment_intent.succeeded"},
    "a connected account's": dispute("pi_9") | {"account": "acct_1"},
}


@pytest.mark.parametrize("event", OF_NO_INTEREST.values(), ids=OF_NO_INTEREST.keys())
def test_an_event_of_no_interest_is_acknowledged(endpoint: Endpoint, event: Event) -> None:
    """Without a request to anybody, and with a line in the log: refused, it would be sent again for days. Its signature
    counts all the same."""
    assert endpoint.send(event) == 200
    assert (endpoint.counted, endpoint.io.asked, endpoint.stripe.requests) == (["EventIgnored"], [], [])
    assert [line["event_id"] for line in endpoint.log.lines] == [event["id"]]
    assert endpoint.send(event, secret="whsec_guessed") == 400


def test_a_live_event_in_a_sandbox_is_deferred(endpoint: Endpoint) -> None:
    """With an alarm, and nothing is asked or changed: the endpoint, or our key, is another environment's."""
    event = endpoint.paid_at_the_bank()
    rows = str(endpoint.dynamodb.tables)
    assert endpoint.send(event | {"livemode": True}) == 503
    assert endpoint.counted == ["EventOfOtherMode", "WebhookDeferred", "Alarm"]
    assert (endpoint.stripe.requests, str(endpoint.dynamodb.tables)) == ([], rows)
    assert endpoint.send(event | {"livemode": False}) == 200


def test_another_shops_event_is_acknowledged(endpoint: Endpoint) -> None:
    """Its shop applies it, through an endpoint of its own."""
    event = endpoint.paid_at_the_bank()
    event["data"]["object"]["metadata"]["shop"] = "another"
    assert endpoint.send(event) == 200
    assert (endpoint.counted, endpoint.stripe.requests) == (["EventOfAnotherShop", "EventProcessed"], [])
    assert endpoint.payment().state is PaymentState.REQUIRES_ACTION


def test_an_event_that_is_deferred_was_received(endpoint: Endpoint) -> None:
    """So the scheduled run does not take its endpoint for silent."""
    event = endpoint.paid_at_the_bank()
    endpoint.stripe.failing["retrieve"] = NO_ANSWER
    assert endpoint.send(event | {"created": T0 + 1}) == 503
    received = endpoint.received.read()
    assert received is not None
    assert received.newest_event_at == T0 + 1


# ---------------------------------------------------------------- whom an event is taken from


def signed(body: str, secret: str = STRIPE_WEBHOOK_SECRET, *, age_seconds: int = 0) -> str:
    return signature(body, secret, int(time.time()) - age_seconds)


HEADERS = {
    "of another secret": lambda body: signed(body, "whsec_guessed"),
    "of another body": lambda body: signed(body + " "),
    "too old": lambda body: signed(body, age_seconds=302),
    "absent": lambda _: "",
    "of another scheme": lambda body: signed(body).replace("v1=", "v0="),
    "no ASCII": lambda _: f"t={int(time.time())},v1=é",
    "sent twice, with an old one": lambda body: f"t={int(time.time())},v1=a,{signed(body, age_seconds=302)}",
    "no signature at all": lambda _: "Bearer x",
    "a time that was changed": lambda body: signature(body, STRIPE_WEBHOOK_SECRET, 1).replace("t=1", "t=4102444800"),
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS.keys())
def test_what_stripe_did_not_sign_is_refused(endpoint: Endpoint, header: Any) -> None:
    """400, the same for every reason, and nothing is asked or changed."""
    body = body_of(endpoint.paid_at_the_bank())
    rows = str(endpoint.dynamodb.tables)
    status, problem = endpoint.request(body, header(body))
    assert (status, endpoint.io.asked, endpoint.counted) == (400, [], ["SignatureRefused"])
    assert str(endpoint.dynamodb.tables) == rows
    assert problem.pop("correlation_id")
    assert problem == {
        "type": "urn:onecharge:problem:not-from-stripe",
        "title": "Bad Request",
        "status": 400,
        "detail": "The signature is not Stripe's.",
    }


@pytest.mark.parametrize("body", ["", "no Base64!", base64.b64encode(b"\xff\xfe").decode()])
def test_a_body_that_cannot_be_read_is_refused(endpoint: Endpoint, body: str) -> None:
    """As any other that Stripe did not sign."""
    assert endpoint.request(body, "t=1,v1=a", encoded=True)[0] == 400


@pytest.mark.parametrize("encoded", [False, True])
def test_the_body_is_verified_as_it_came(endpoint: Endpoint, encoded: bool) -> None:
    """White space, escapes and the order of names are Stripe's; the gateway in between may encode it. A signature is
    good for five minutes, Stripe's own tolerance."""
    event = endpoint.paid_at_the_bank()
    escaped = json.dumps({"note": "caf\u00e9", **dict(reversed(event.items()))}, indent=1)
    body = f"\n {escaped}".replace('"evt', '"\\u0065vt') + " \t\n"
    sent = base64.b64encode(body.encode()).decode() if encoded else body
    assert endpoint.request(sent, signed(body, age_seconds=290), encoded=encoded)[0] == 200
    assert endpoint.payment().state is PaymentState.SUCCEEDED


@pytest.mark.parametrize(("method", "path"), [("POST", "/stripe/event"), ("GET", "/stripe/events")])
def test_another_path_or_method_is_no_failure(endpoint: Endpoint, method: str, path: str) -> None:
    """404, without an alarm: nothing of Stripe's is lost."""
    http = endpoint.sample("stripe_webhook/payment_intent_succeeded")
    http["rawPath"], http["requestContext"]["http"] = path, {"method": method, "path": path}
    status, problem = endpoint.resolve(http)
    assert (status, problem["type"]) == (404, "urn:onecharge:problem:not-found")
    assert (endpoint.counted, endpoint.io.asked) == ([], [])


OURS, NEW = STRIPE_WEBHOOK_SECRET, "whsec_new"


@pytest.mark.parametrize(
    ("stored", "signers", "status"),
    [
        (OURS, (OURS, NEW), 200),
        (NEW, (OURS, NEW), 200),
        (NEW, (NEW,), 200),
        (NEW, (OURS,), 400),
    ],
)
def test_while_the_secret_is_rotated_the_stored_one_is_good(
    endpoint: Endpoint, stored: str, signers: tuple[str, ...], status: int
) -> None:
    """One endpoint signs with the old one and the new one, or two endpoints with one each."""
    event = endpoint.paid_at_the_bank()
    endpoint.secret.cached = endpoint.secret.actual = stored
    assert endpoint.send(event, header=",".join(signed(body_of(event), each) for each in signers)) == status


def test_a_secret_that_was_rotated_a_moment_ago_refuses_no_event(endpoint: Endpoint) -> None:
    """The first event that it does not verify has it read again."""
    event = endpoint.paid_at_the_bank()
    endpoint.secret.actual = NEW
    assert endpoint.send(event, secret=NEW) == 200
    assert (endpoint.secret.read, "SignatureRefused" in endpoint.counted) == (1, False)


@pytest.mark.parametrize("placeholder", ["later", "", "whsec_", "whsec_..."])
def test_a_placeholder_verifies_nothing(endpoint: Endpoint, placeholder: str) -> None:
    """Anybody can guess it. Until a signing secret is stored, everything is answered with 503 and an alarm: Stripe
    sends it again."""
    event = endpoint.paid_at_the_bank()
    rows = str(endpoint.dynamodb.tables)
    endpoint.secret.cached = endpoint.secret.actual = placeholder
    assert endpoint.send(event, secret=placeholder) == 503
    assert (endpoint.counted, endpoint.stripe.requests) == (["WebhookDeferred", "Alarm"], [])
    assert str(endpoint.dynamodb.tables) == rows
    endpoint.secret.actual = OURS
    assert endpoint.send(event, secret=placeholder) == 400
    assert endpoint.send(event) == 200


def test_nothing_sensitive_is_logged(endpoint: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    """No secret, no signature, no body, no client secret: not of a good event, a forged one, or one that fails."""
    body = body_of(endpoint.paid_at_the_bank())
    good, forged = signed(body), signature(body, "whsec_guessed", 4102444800)
    endpoint.request(body, forged)
    endpoint.stripe.failing[""] = NO_ANSWER
    endpoint.request(body, good)
    endpoint.stripe.failing.clear()
    endpoint.request(body, good)
    assert endpoint.post('["pi_secret_of_a_customer"]')[0] == 500
    printed = capsys.readouterr()
    said = endpoint.log.text + printed.out + printed.err
    assert order_id("a") in said
    for secret in ("whsec_", good[-64:], forged[-64:], "pi_secret", '"object"', "metadata"):
        assert secret not in said, secret


# ---------------------------------------------------------------- outages


@pytest.mark.parametrize("failing", ["dynamodb GetItem", "dynamodb UpdateItem", "dynamodb PutItem", "retrieve"])
def test_what_cannot_be_applied_is_deferred(endpoint: Endpoint, failing: str) -> None:
    """503: when it is sent again, it is applied."""
    event = endpoint.paid_at_the_bank()
    endpoint.io.failing = failing
    endpoint.stripe.failing[failing] = NO_ANSWER
    status, problem = endpoint.post(body_of(event))
    assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")
    assert endpoint.counted[-1] == "WebhookDeferred"
    endpoint.io.failing = ""
    endpoint.stripe.failing.clear()
    assert endpoint.send(event) == 200
    assert endpoint.payment().state is PaymentState.SUCCEEDED
    assert endpoint.counted.count("MoneyCharged") == 1


@pytest.mark.parametrize("wrong", [WRONG_KEY, None])
def test_a_wrong_key_is_an_alarm_and_loses_no_event(endpoint: Endpoint, wrong: Any) -> None:
    """Of no account, or of another one, to which the PaymentIntent is unknown."""
    event = endpoint.paid_at_the_bank()
    if wrong:
        endpoint.stripe.failing["retrieve"] = wrong
    else:
        endpoint.stripe.account = 1
    assert endpoint.send(event) == 503
    assert endpoint.counted == ["WebhookDeferred", "Alarm"]
    endpoint.stripe.failing.clear()
    endpoint.stripe.account = 0
    assert endpoint.send(event) == 200
    assert endpoint.payment().state is PaymentState.SUCCEEDED


def test_a_secret_that_cannot_be_read_is_an_outage(aws: None, sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is refused for it: Stripe sends again, and by then the secret is there."""
    monkeypatch.setattr("onecharge.runtime.secrets.RETRY_SECONDS", 0)
    variables = load_template()["Resources"]["StripeWebhookFunction"]["Properties"]["Environment"]["Variables"]
    parts = StripeWebhookParts({name: number_of(name) or name for name in variables})
    event = sample("stripe_webhook/payment_intent_succeeded")
    event["body"] = event["body"].replace("payment_intent.succeeded", "customer.created")
    event["headers"]["stripe-signature"] = signature(event["body"], STRIPE_WEBHOOK_SECRET, int(time.time()))
    assert parts.route.resolver.resolve(event, LambdaContext())["statusCode"] == 503
    secrets = boto3.client("secretsmanager")
    secrets.create_secret(Name="STRIPE_SECRET_ARN", SecretString="sk_test_x")
    secrets.create_secret(Name="STRIPE_WEBHOOK_SECRET_ARN", SecretString=f"{STRIPE_WEBHOOK_SECRET}\n")
    assert parts.route.resolver.resolve(event, LambdaContext())["statusCode"] == 200
    parts.counts.flush()


# ---------------------------------------------------------------- the samples


@pytest.mark.parametrize("name", SAMPLES["stripe_webhook"])
def test_each_sample_is_what_its_name_says(endpoint: Endpoint, name: str) -> None:
    """They are signed for the year 2100 with the local run's secret: Stripe's verifier refuses only what is old."""
    status = endpoint.resolve(endpoint.sample(f"stripe_webhook/{name}"))[0]
    assert status == SAMPLES["stripe_webhook"][name]
