"""stripe_webhook: what Stripe has signed is applied, or sent again; nothing else is.

What an event changes is in payments/test_sync.py.
"""

import base64
import json
import time
from collections.abc import Callable

import pytest

from local.given_stripe import STRIPE_WEBHOOK_SECRET
from local.samples import SAMPLES
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


def of_another_shop(paid: Event) -> Event:
    paid["data"]["object"]["metadata"]["shop"] = "another"
    return paid


IGNORED, DEFERRED = ["EventIgnored"], ["WebhookDeferred", "Alarm"]
DISPUTE = event_of("charge.dispute.created", "dispute", id="dp_1", payment_intent="pi_9", metadata={})
THIN = {"id": "evt_1", "object": "v2.core.event", "type": "v1.payment_intent.succeeded"}
NOT_APPLIED: dict[str, tuple[Callable[[Event], Event], int, list[str]]] = {
    "another type": (lambda _: event_of("customer.created", "customer", id="cus_1"), 200, IGNORED),
    "an event without its object": (lambda _: THIN, 200, IGNORED),
    "a connected account's": (lambda _: DISPUTE | {"account": "acct_1"}, 200, IGNORED),
    "another shop's": (of_another_shop, 200, ["EventOfAnotherShop", "EventProcessed"]),
    "a live one in a sandbox": (lambda paid: paid | {"livemode": True}, 503, ["EventOfOtherMode", *DEFERRED]),
}


@pytest.mark.parametrize(("event", "status", "counted"), NOT_APPLIED.values(), ids=NOT_APPLIED)
def test_an_event_of_others_is_not_applied(
    endpoint: Endpoint, event: Callable[[Event], Event], status: int, counted: list[str]
) -> None:
    """Nothing is asked or changed. It is acknowledged, or it would be sent again for days, and the log names what is
    ignored; in the wrong mode it is deferred with an alarm. Its signature counts all the same."""
    sent = event(endpoint.paid_at_the_bank())
    payment = endpoint.payment()
    assert (endpoint.send(sent), endpoint.counted, endpoint.stripe.requests) == (status, counted, [])
    assert endpoint.payment() == payment
    assert sent["id"] in endpoint.log.text or counted != IGNORED
    assert endpoint.send(sent, secret="whsec_guessed") == 400


# ---------------------------------------------------------------- from whom an event is taken

HEADERS: dict[str, Callable[[str], str]] = {
    "of another secret": lambda body: signed(body, "whsec_guessed"),
    "of another body": lambda body: signed(body + " "),
    "too old": lambda body: signed(body, age_seconds=302),
    "absent": lambda _: "",
    "no ASCII": lambda _: f"t={int(time.time())},v1=é",
    "sent twice, with an old one": lambda body: f"t={int(time.time())},v1=a,{signed(body, age_seconds=302)}",
    "a time that was changed": lambda body: signature(body, STRIPE_WEBHOOK_SECRET, 1).replace("t=1", "t=4102444800"),
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_what_stripe_did_not_sign_is_refused(endpoint: Endpoint, header: Callable[[str], str]) -> None:
    """400, the same for every reason, and nothing is asked or changed."""
    body = body_of(endpoint.paid_at_the_bank())
    rows = str(endpoint.dynamodb.tables)
    status, problem = endpoint.request(body, header(body))
    assert (status, endpoint.io.asked, endpoint.counted) == (400, [], ["SignatureRefused"])
    assert (str(endpoint.dynamodb.tables), problem["detail"]) == (rows, "The signature is not Stripe's.")
    for unreadable in ("", "no Base64!", base64.b64encode(b"\xff\xfe").decode()):
        assert endpoint.request(unreadable, header(body), encoded=True)[0] == 400


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
        ("later", OURS, (OURS,), 200),
        ("later", OURS, ("later",), 400),
        *((placeholder, placeholder, (placeholder,), 503) for placeholder in ("later", "", "whsec_", "whsec_...")),
    ],
)
def test_while_the_secret_is_rotated_no_event_is_refused(
    endpoint: Endpoint, cached: str, actual: str, signers: tuple[str, ...], status: int
) -> None:
    """One endpoint signs with the old one and the new one, or two endpoints with one each. What the cached one does not
    verify has it read again. A placeholder, which anybody can guess, verifies nothing: 503 and an alarm."""
    event = endpoint.paid_at_the_bank()
    endpoint.secret.cached, endpoint.secret.actual = cached, actual
    assert endpoint.send(event, header=",".join(signed(body_of(event), each) for each in signers)) == status
    assert endpoint.payment().state is (PaymentState.SUCCEEDED if status == 200 else PaymentState.REQUIRES_ACTION)
    assert (endpoint.counted == DEFERRED) is (status == 503)


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
    said = endpoint.log.text + "".join(capsys.readouterr())
    assert order_id("a") in said
    secrets = ("whsec_", good[-64:], forged[-64:], "pi_secret", '"object"', "metadata")
    assert [each for each in secrets if each in said] == []


# ---------------------------------------------------------------- outages

OUTAGES = {
    **{f"dynamodb {each}": None for each in ("GetItem", "UpdateItem", "PutItem")},
    **{"no answer": ["WebhookDeferred"], "a wrong key": DEFERRED, "another account": DEFERRED},
}


@pytest.mark.parametrize(("failing", "counted"), OUTAGES.items())
def test_what_cannot_be_applied_is_deferred(endpoint: Endpoint, failing: str, counted: list[str] | None) -> None:
    """503, and an alarm if the key is wrong: of no account, or of another one, to which the PaymentIntent is unknown.
    When it is sent again, it is applied. It was received: the scheduled run does not take its endpoint for silent."""
    event = endpoint.paid_at_the_bank() | {"created": T0 + 1}
    endpoint.io.failing, endpoint.stripe.of_account = failing, int(failing == "another account")
    if failing in ("no answer", "a wrong key"):
        endpoint.stripe.failing["retrieve"] = NO_ANSWER if failing == "no answer" else WRONG_KEY
    status, problem = endpoint.post(body_of(event))
    assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")
    assert endpoint.counted == (counted or endpoint.counted)
    assert "WebhookDeferred" in endpoint.counted
    endpoint.io.failing, endpoint.stripe.of_account = "", 0
    endpoint.stripe.failing.clear()
    received = endpoint.received.read()
    assert not counted or (received and received.newest_event_at) == T0 + 1
    assert (endpoint.send(event), endpoint.payment().state) == (200, PaymentState.SUCCEEDED)
    assert endpoint.counted.count("Payment.SUCCEEDED") == 1


@pytest.mark.parametrize("name", SAMPLES["stripe_webhook"])
def test_each_sample_is_what_its_name_says(endpoint: Endpoint, name: str) -> None:
    """They are signed for the year 2100 with the local run's secret: Stripe's verifier refuses only what is old."""
    assert endpoint.resolve(endpoint.sample(f"stripe_webhook/{name}"))[0] == SAMPLES["stripe_webhook"][name]
