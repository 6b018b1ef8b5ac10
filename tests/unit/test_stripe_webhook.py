"""stripe_webhook: what Stripe has signed is applied, or sent again; nothing else is.

What an event changes is in payments/test_sync.py.
"""

import base64
import json
import time
from collections.abc import Callable

import pytest

from local.given_stripe import STRIPE_WEBHOOK_SECRET
from onecharge.contract.states import PaymentState
from stripe_standin.webhook_endpoints import signature
from tests.shop.builders import T0
from tests.shop.endpoint import Endpoint, Event, body_of, event_of
from tests.shop.scripted_stripe import NO_ANSWER, WRONG_KEY
from tests.shop.shop import order_id
from tests.support.harness import Log, Sample


@pytest.fixture
def endpoint(log: Log, sample: Sample) -> Endpoint:
    return Endpoint(log, sample=sample)


def signed(body: str, secret: str = STRIPE_WEBHOOK_SECRET, *, age_seconds: int = 0) -> str:
    return signature(body, secret, int(time.time()) - age_seconds)


_OF_A_DISPUTE = event_of("charge.dispute.created", "dispute", id="dp_1", payment_intent="pi_9", metadata={})
OF_NO_INTEREST = {
    "another type": event_of("customer.created", "customer", id="cus_1"),
    "an event without its object": {"id": "evt_1", "object": "v2.core.event", "type": "v1.payment_intent.succeeded"},
    "a connected account's": _OF_A_DISPUTE | {"account": "acct_1"},
}


@pytest.mark.parametrize("event", OF_NO_INTEREST.values(), ids=OF_NO_INTEREST.keys())
def test_an_event_of_no_interest_is_acknowledged(endpoint: Endpoint, event: Event) -> None:
    """Without a request to anybody, and with a line in the log: refused, it would be sent again for days. Its signature
    counts all the same."""
    assert endpoint.send(event) == 200
    assert (endpoint.counted, endpoint.io.asked, endpoint.stripe.requests) == (["EventIgnored"], [], [])
    assert [line["event_id"] for line in endpoint.log.lines] == [event["id"]]
    assert endpoint.send(event, secret="whsec_guessed") == 400


# ---------------------------------------------------------------- whom an event is taken from

HEADERS: dict[str, Callable[[str], str]] = {
    "of another secret": lambda body: signed(body, "whsec_guessed"),
    "of another body": lambda body: signed(body + " "),
    "too old": lambda body: signed(body, age_seconds=302),
    "no ASCII": lambda _: f"t={int(time.time())},v1=é",
    "a time that was changed": lambda body: signature(body, STRIPE_WEBHOOK_SECRET, 1).replace("t=1", "t=4102444800"),
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS.keys())
def test_what_stripe_did_not_sign_is_refused(endpoint: Endpoint, header: Callable[[str], str]) -> None:
    """400, the same for every reason, and nothing is asked or changed."""
    body = body_of(endpoint.paid_at_the_bank())
    rows = str(endpoint.dynamodb.tables)
    status, problem = endpoint.request(body, header(body))
    assert (status, endpoint.io.asked, endpoint.counted) == (400, [], ["SignatureRefused"])
    assert str(endpoint.dynamodb.tables) == rows
    assert (problem["type"], problem["detail"]) == (
        "urn:onecharge:problem:not-from-stripe",
        "The signature is not Stripe's.",
    )


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


OURS, NEW = STRIPE_WEBHOOK_SECRET, "whsec_new"


@pytest.mark.parametrize(
    ("cached", "actual", "signers", "status"),
    [
        (OURS, OURS, (OURS, NEW), 200),
        (NEW, NEW, (OURS, NEW), 200),
        (NEW, NEW, (OURS,), 400),
        (OURS, NEW, (NEW,), 200),
        ("later", OURS, ("later",), 400),
    ],
)
def test_while_the_secret_is_rotated_no_event_is_refused(
    endpoint: Endpoint, cached: str, actual: str, signers: tuple[str, ...], status: int
) -> None:
    """One endpoint signs with the old one and the new one, or two endpoints with one each. What the cached one does not
    verify has it read again."""
    event = endpoint.paid_at_the_bank()
    endpoint.secret.cached, endpoint.secret.actual = cached, actual
    assert endpoint.send(event, header=",".join(signed(body_of(event), each) for each in signers)) == status


@pytest.mark.parametrize("placeholder", ["later", "", "whsec_", "whsec_..."])
def test_a_placeholder_verifies_nothing(endpoint: Endpoint, placeholder: str) -> None:
    """Anybody can guess it. Until a signing secret is stored, everything is answered with 503 and an alarm."""
    event = endpoint.paid_at_the_bank()
    rows = str(endpoint.dynamodb.tables)
    endpoint.secret.cached = endpoint.secret.actual = placeholder
    assert endpoint.send(event, secret=placeholder) == 503
    assert (endpoint.counted, endpoint.stripe.requests) == (["WebhookDeferred", "Alarm"], [])
    assert str(endpoint.dynamodb.tables) == rows


def test_nothing_sensitive_is_logged(endpoint: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    """No secret, no signature, no body, no client secret: not of a good event, a forged one, or one that fails, which
    is an alarm."""
    body = body_of(endpoint.paid_at_the_bank())
    good, forged = signed(body), signature(body, "whsec_guessed", 4102444800)
    endpoint.request(body, forged)
    endpoint.stripe.failing[""] = NO_ANSWER
    endpoint.request(body, good)
    endpoint.stripe.failing.clear()
    endpoint.request(body, good)
    endpoint.counted.clear()
    assert (endpoint.post('["pi_secret_of_a_customer"]')[0], endpoint.counted) == (500, ["Alarm"])
    printed = capsys.readouterr()
    said = endpoint.log.text + printed.out + printed.err
    assert order_id("a") in said
    for secret in ("whsec_", good[-64:], forged[-64:], "pi_secret", '"object"', "metadata"):
        assert secret not in said, secret


# ---------------------------------------------------------------- outages

_RETRIED, _ALARM = ["WebhookDeferred"], ["WebhookDeferred", "Alarm"]
OUTAGES = {
    **{f"dynamodb {each}": None for each in ("GetItem", "UpdateItem", "PutItem")},
    **{"no answer": _RETRIED, "a wrong key": _ALARM, "another account": _ALARM},
}


@pytest.mark.parametrize(("failing", "counted"), OUTAGES.items())
def test_what_cannot_be_applied_is_deferred(endpoint: Endpoint, failing: str, counted: list[str] | None) -> None:
    """503, and an alarm if the key is wrong: of no account, or of another one, to which the PaymentIntent is unknown.
    When it is sent again, it is applied. It was received: the scheduled run does not take its endpoint for silent."""
    event = endpoint.paid_at_the_bank() | {"created": T0 + 1}
    endpoint.io.failing, endpoint.stripe.account = failing, int(failing == "another account")
    if failing in ("no answer", "a wrong key"):
        endpoint.stripe.failing["retrieve"] = NO_ANSWER if failing == "no answer" else WRONG_KEY
    status, problem = endpoint.post(body_of(event))
    assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")
    assert "WebhookDeferred" in endpoint.counted
    assert endpoint.counted == (counted or endpoint.counted)
    endpoint.io.failing, endpoint.stripe.account = "", 0
    endpoint.stripe.failing.clear()
    received = endpoint.received.read()
    assert not counted or (received and received.newest_event_at) == T0 + 1
    assert endpoint.send(event) == 200
    assert endpoint.payment().state is PaymentState.SUCCEEDED
    assert endpoint.counted.count("MoneyCharged") == 1


def test_a_live_event_in_a_sandbox_is_deferred(endpoint: Endpoint) -> None:
    """With an alarm, and nothing is asked or changed: the endpoint, or our key, is another environment's."""
    event = endpoint.paid_at_the_bank()
    rows = str(endpoint.dynamodb.tables)
    assert endpoint.send(event | {"livemode": True}) == 503
    assert endpoint.counted == ["EventOfOtherMode", "WebhookDeferred", "Alarm"]
    assert (endpoint.stripe.requests, str(endpoint.dynamodb.tables)) == ([], rows)
    assert endpoint.send(event | {"livemode": False}) == 200
