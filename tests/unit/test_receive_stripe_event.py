"""receive_stripe_event: what Stripe has signed settles a row, in any order and however often; nothing else does.

DynamoDB and Stripe are in memory here, held to the others' behaviour by tests/contract.
"""

import base64
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from onecharge.payments.ledger import Claimed, Ledger
from onecharge.payments.settling import Settler
from receive_stripe_event.handled_events import HandledEvents

from local.samples import SAMPLES
from local.stack import STRIPE_WEBHOOK_SECRET
from local.stripe_standin.webhooks import signature
from onecharge.payments.protocol import ChargeRow
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.states import PaymentState
from receive_stripe_event.app import Application, StripeEventsApi
from receive_stripe_event.receive import ReceiveStripeEvent
from tests.conftest import LambdaContext, Log, Sample
from tests.contract.test_stripe_gateway import request_for
from tests.simulation.dynamodb import MemoryDynamoDB, NoFaults
from tests.simulation.stripe import Event, MemoryStripe, PaymentIntent, stripe_in_memory

T0 = 1_800_000_000
LEASE_SECONDS = 35
_3DS = "pm_card_threeDSecure2Required"


class Watched(NoFaults):
    """Keeps what was asked of DynamoDB and Stripe; one operation may be made to fail."""

    def __init__(self) -> None:
        super().__init__(T0)
        self.asked: list[str] = []
        self.failing = ""

    def pause(self, where: str) -> None:
        if not where.endswith("answered"):
            self.asked.append(where)

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        return kinds[0] if where == self.failing else None


@dataclass
class Endpoint:
    """The function behind its route, with a ledger and a Stripe in memory."""

    log: Log
    sample: Sample
    io: Watched = field(default_factory=Watched)
    counted: list[str] = field(default_factory=list)
    secret: str = STRIPE_WEBHOOK_SECRET

    def __post_init__(self) -> None:
        keys = {"Charges": ("order_id", "attempt"), "StripeEvents": ("event_id",)}
        self.dynamodb: Any = MemoryDynamoDB(keys=keys, io=self.io)
        self.stripe = MemoryStripe(io=self.io)
        self.ledger = Ledger(self.dynamodb, "Charges")
        self.gateway = StripeGateway(stripe_in_memory(self.stripe))
        count = self.counted.append
        logger = self.log.logger
        settler = Settler(self.ledger, self.gateway, 25, lambda: self.io.time, logger, count)
        handled = HandledEvents(self.dynamodb, "StripeEvents")
        receive = ReceiveStripeEvent(self.gateway, settler, handled, lambda: self.io.time, logger, count)
        self.api = StripeEventsApi(secret=lambda: self.secret, receive=lambda: receive, logger=logger, counts=count)

    # ------------------------------------------------------------ what has happened before

    def charge(self, *, state: PaymentState | None = None, **changes: Any) -> PaymentIntent:
        """A worker charges the order; settles it as `state`, or has not come to it yet."""
        request = request_for(**changes)
        claim = self.ledger.claim(
            request, correlation_id="c", placed_at=self.io.time, now=self.io.time, lease_seconds=LEASE_SECONDS
        )
        assert isinstance(claim, Claimed)
        self.gateway.charge(request, claim.row.idempotency_key)
        intent = self.stripe.intents[-1]
        if state:
            self.ledger.settle(claim.row, state, payment_intent_id=intent.id, code=None, now=self.io.time)
        return intent

    def at_the_bank(self) -> PaymentIntent:
        """The customer of an order has been sent to the bank."""
        return self.charge(state=PaymentState.REQUIRES_ACTION, payment_method=_3DS)

    def told(self, status: str) -> Event:
        """The last event that Stripe made of this kind."""
        return next(event for event in reversed(self.stripe.events) if event.type == f"payment_intent.{status}")

    @property
    def row(self) -> ChargeRow:
        row = self.ledger.read(request_for().order_id, 1)
        assert row is not None
        return row

    # ------------------------------------------------------------ what Stripe sends

    def send(self, event: Event, **how: Any) -> int:
        return self.post(body_of(event), **how)[0]

    def post(
        self, body: str, *, header: str | None = None, secret: str = STRIPE_WEBHOOK_SECRET, age_seconds: int = 0
    ) -> tuple[int, dict[str, Any]]:
        signed = signature(body, secret, int(time.time()) - age_seconds)
        return self.request(body, signed if header is None else header)

    def request(self, body: str, header: str, *, encoded: bool = False) -> tuple[int, dict[str, Any]]:
        http = self.sample("receive_stripe_event/unsigned")
        http["headers"] |= {"stripe-signature": header} if header else {}
        http |= {"body": body, "isBase64Encoded": encoded}
        return self.resolve(http)

    def resolve(self, http: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.io.asked.clear()
        answer = self.api.resolver.resolve(http, LambdaContext())
        return answer["statusCode"], json.loads(answer["body"])


def body_of(event: Event) -> str:
    """The event as Stripe writes it."""
    intent = event.data.object
    thing = vars(intent) if isinstance(intent, SimpleNamespace) else _as_json(intent)
    return json.dumps({"id": event.id, "object": "event", "type": event.type, "data": {"object": thing}}, indent=2)


def _as_json(intent: PaymentIntent) -> dict[str, Any]:
    error = intent.last_payment_error
    return {
        "id": intent.id,
        "object": "payment_intent",
        "amount": intent.amount,
        "currency": intent.currency,
        "status": intent.status,
        "metadata": dict(intent.metadata),
        "last_payment_error": vars(error) if error else None,
        "client_secret": "pi_secret_of_a_customer",
    }


@pytest.fixture
def endpoint(log: Log, sample: Sample) -> Endpoint:
    return Endpoint(log, sample)


# ---------------------------------------------------------------- what an event does


def test_an_order_that_is_paid_at_the_bank_is_settled(endpoint: Endpoint) -> None:
    """Within the request that tells of it."""
    intent = endpoint.at_the_bank()
    endpoint.stripe.becomes(intent, "succeeded")
    assert endpoint.send(endpoint.told("succeeded")) == 200
    assert (endpoint.row.state, endpoint.row.payment_intent_id) == (PaymentState.SUCCEEDED, intent.id)


def test_a_failed_authentication_is_canceled_and_declined(endpoint: Endpoint) -> None:
    """Or the customer's page could confirm it once more, beside the next attempt."""
    intent = endpoint.at_the_bank()
    endpoint.stripe.becomes(intent, "requires_payment_method")
    assert endpoint.send(endpoint.told("payment_failed")) == 200
    assert (endpoint.row.state, intent.status) == (PaymentState.DECLINED, "canceled")
    assert endpoint.send(endpoint.told("canceled")) == 200
    assert endpoint.row.state is PaymentState.DECLINED


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_events_are_harmless_in_any_order_and_repeated(endpoint: Endpoint, order: tuple[int, ...]) -> None:
    """The customer is asked, fails, tries again and pays: whatever comes first, it is paid, and no alarm is raised."""
    intent = endpoint.at_the_bank()
    endpoint.stripe.becomes(intent, "requires_payment_method")
    endpoint.stripe.becomes(intent, "succeeded")
    events = list(endpoint.stripe.events)
    for place in (*order, *order):
        assert endpoint.send(events[place]) == 200
    assert endpoint.row.state is PaymentState.SUCCEEDED
    assert "Alarm" not in endpoint.counted


def test_a_repeated_event_asks_stripe_nothing(endpoint: Endpoint) -> None:
    """One read in DynamoDB says that it was handled."""
    endpoint.stripe.becomes(endpoint.at_the_bank(), "succeeded")
    event = endpoint.told("succeeded")
    endpoint.send(event)
    assert endpoint.send(event) == 200
    assert endpoint.io.asked == ["dynamodb GetItem"]
    assert endpoint.counted == ["Reconciled.SUCCEEDED", "EventHandled", "EventRepeated"]


def test_a_row_that_a_worker_holds_is_left_to_it(endpoint: Endpoint) -> None:
    """2xx, since the worker settles it: that Stripe tells before it does is the usual case."""
    endpoint.charge()
    held = endpoint.row
    assert endpoint.send(endpoint.told("succeeded")) == 200
    assert endpoint.io.asked == ["dynamodb GetItem", "dynamodb GetItem", "dynamodb PutItem"]
    assert endpoint.row == held


def test_a_row_that_nobody_holds_is_settled(endpoint: Endpoint) -> None:
    """Its worker was killed: the event is the first that is heard of the charge."""
    intent = endpoint.charge()
    endpoint.io.time += LEASE_SECONDS
    assert endpoint.send(endpoint.told("succeeded")) == 200
    assert (endpoint.row.state, endpoint.row.payment_intent_id) == (PaymentState.SUCCEEDED, intent.id)


def test_an_event_of_no_interest_is_acknowledged(endpoint: Endpoint) -> None:
    """Another type, or a PaymentIntent of somebody else's, without asking anybody anything."""
    data = SimpleNamespace(object=SimpleNamespace(id="cus_1", object="customer"))
    assert endpoint.send(Event("evt_1", "customer.created", T0, data)) == 200
    for metadata in ({}, {"order_id": "4711"}, {"order_id": request_for().order_id, "attempt": "first"}):
        foreign = SimpleNamespace(id="pi_9", object="payment_intent", metadata=metadata)
        assert endpoint.send(Event("evt_2", "payment_intent.succeeded", T0, SimpleNamespace(object=foreign))) == 200
        assert endpoint.io.asked == []
    assert set(endpoint.counted) == {"EventIgnored"}


# ---------------------------------------------------------------- refunds and disputes


def aftermath(type_: str, kind: str, **thing: Any) -> Event:
    return Event("evt_after", type_, T0, SimpleNamespace(object=SimpleNamespace(id="x_1", object=kind, **thing)))


def test_a_refund_is_counted_with_its_order(endpoint: Endpoint) -> None:
    """By the metadata that Stripe copies to the charge; no state changes."""
    intent = endpoint.charge(state=PaymentState.SUCCEEDED)
    refund = aftermath("charge.refunded", "charge", payment_intent=intent.id, metadata=dict(intent.metadata))
    assert endpoint.send(refund) == 200
    assert endpoint.counted == ["ChargeRefunded"]
    assert "stripe retrieve" not in endpoint.io.asked
    assert endpoint.log.lines[-1]["order_id"] == request_for().order_id
    assert endpoint.row.state is PaymentState.SUCCEEDED


def test_a_dispute_is_an_alarm_with_its_order(endpoint: Endpoint) -> None:
    """It names no order: its PaymentIntent does. Sent again, it is counted once."""
    intent = endpoint.charge(state=PaymentState.SUCCEEDED)
    dispute = aftermath("charge.dispute.created", "dispute", payment_intent=intent.id, metadata={})
    assert [endpoint.send(dispute), endpoint.send(dispute)] == [200, 200]
    assert endpoint.counted == ["ChargeDisputed", "Alarm", "EventRepeated"]
    [line] = [line for line in endpoint.log.lines if line["level"] == "ERROR"]
    assert (line["order_id"], line["attempt"], line["payment_intent_id"]) == (request_for().order_id, 1, intent.id)


@pytest.mark.parametrize("payment_intent", [None, "pi_of_another_account"])
def test_somebody_elses_dispute_is_acknowledged(endpoint: Endpoint, payment_intent: str | None) -> None:
    """As of a charge without a PaymentIntent."""
    assert endpoint.send(aftermath("charge.dispute.created", "dispute", payment_intent=payment_intent)) == 200
    assert endpoint.counted == ["EventIgnored"]


# ---------------------------------------------------------------- who may tell


def refused(endpoint: Endpoint, body: str, header: str) -> dict[str, Any]:
    """What a request is answered with that must change nothing, and reveal nothing."""
    rows = str(endpoint.dynamodb.tables)
    status, problem = endpoint.request(body, header)
    assert status == 400
    assert endpoint.io.asked == []
    assert str(endpoint.dynamodb.tables) == rows
    assert endpoint.counted == ["SignatureRefused"]
    return problem


HEADERS = {
    "of another secret": lambda body: signature(body, "whsec_guessed", int(time.time())),
    "of another body": lambda body: signature(body + " ", STRIPE_WEBHOOK_SECRET, int(time.time())),
    "too old": lambda body: signature(body, STRIPE_WEBHOOK_SECRET, int(time.time()) - 302),
    "absent": lambda _: "",
    "of another scheme": lambda body: signature(body, STRIPE_WEBHOOK_SECRET, int(time.time())).replace("v1=", "v0="),
    "no ASCII": lambda _: f"t={int(time.time())},v1=é",
    "no signature at all": lambda _: "Bearer x",
    "a time that was changed": lambda body: signature(body, STRIPE_WEBHOOK_SECRET, 1).replace("t=1", "t=4102444800"),
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS.keys())
def test_what_stripe_did_not_sign_is_refused(endpoint: Endpoint, header: Any) -> None:
    """400, the same for every reason, and nothing is asked or changed."""
    endpoint.stripe.becomes(endpoint.at_the_bank(), "succeeded")
    body = body_of(endpoint.told("succeeded"))
    problem = refused(endpoint, body, header(body))
    assert problem.pop("correlation_id")
    assert problem == {
        "type": "urn:onecharge:problem:not-from-stripe",
        "title": "Bad Request",
        "status": 400,
        "detail": "This is no event that Stripe has signed.",
    }


@pytest.mark.parametrize("body", ["", "no Base64!", base64.b64encode(b"\xff\xfe").decode()])
def test_a_body_that_cannot_be_read_is_refused(endpoint: Endpoint, body: str) -> None:
    """As any other that Stripe did not sign."""
    http = endpoint.sample("receive_stripe_event/payment_intent_payment_failed")
    assert http["isBase64Encoded"]
    assert endpoint.resolve(http | {"body": body})[0] == 400


def test_a_signature_is_good_for_five_minutes(endpoint: Endpoint) -> None:
    """Stripe's own tolerance."""
    endpoint.stripe.becomes(endpoint.at_the_bank(), "succeeded")
    assert endpoint.send(endpoint.told("succeeded"), age_seconds=290) == 200
    assert endpoint.row.state is PaymentState.SUCCEEDED


@pytest.mark.parametrize("encoded", [False, True])
def test_the_body_is_verified_as_it_came(endpoint: Endpoint, encoded: bool) -> None:
    """White space, escapes and the order of names are Stripe's; the gateway in between may encode it."""
    endpoint.stripe.becomes(endpoint.at_the_bank(), "succeeded")
    event = json.loads(body_of(endpoint.told("succeeded")))
    escaped = json.dumps({"note": "caf\u00e9", **dict(reversed(event.items()))}, indent=1)
    body = f"\n {escaped}".replace('"evt', '"\\u0065vt') + " \t\n"
    header = signature(body, STRIPE_WEBHOOK_SECRET, int(time.time()))
    sent = base64.b64encode(body.encode()).decode() if encoded else body
    assert endpoint.request(sent, header, encoded=encoded)[0] == 200
    assert endpoint.row.state is PaymentState.SUCCEEDED


def test_a_secret_that_was_rolled_is_the_one_that_counts(endpoint: Endpoint) -> None:
    """It is asked for with every request; while Stripe signs with both, either of them is good."""
    endpoint.stripe.becomes(endpoint.at_the_bank(), "succeeded")
    event = endpoint.told("succeeded")
    now = int(time.time())
    both = ",".join(
        [signature(body_of(event), STRIPE_WEBHOOK_SECRET, now), signature(body_of(event), "whsec_new", now)]
    )
    assert endpoint.send(event, header=both) == 200
    endpoint.secret = "whsec_new"
    assert endpoint.send(event, header=both) == 200
    assert endpoint.send(event) == 400
    assert endpoint.send(event, secret="whsec_new") == 200


def test_nothing_sensitive_is_logged(endpoint: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
    """No secret, no signature, no body, no client secret: not of a good event, a forged one, or one that fails."""
    endpoint.stripe.becomes(endpoint.at_the_bank(), "succeeded")
    body = body_of(endpoint.told("succeeded"))
    good, forged = (
        signature(body, STRIPE_WEBHOOK_SECRET, int(time.time())),
        signature(body, "whsec_guessed", 4102444800),
    )
    endpoint.request(body, forged)
    endpoint.stripe.down = True
    endpoint.request(body, good)
    endpoint.stripe.down = False
    endpoint.request(body, good)
    malformed = '["pi_secret_of_a_customer"]'
    assert endpoint.post(malformed)[0] == 500
    printed = capsys.readouterr()
    said = endpoint.log.text + printed.out + printed.err
    assert request_for().order_id in said
    for secret in ("whsec_", good[-64:], forged[-64:], "pi_secret", '"object"', "metadata"):
        assert secret not in said, secret


# ---------------------------------------------------------------- outages


@pytest.mark.parametrize(
    "failing",
    ["dynamodb GetItem", "dynamodb UpdateItem", "dynamodb PutItem", "stripe retrieve"],
)
def test_what_cannot_be_handled_is_sent_again(endpoint: Endpoint, failing: str) -> None:
    """503, and the event is not taken for handled: when it comes again, it is."""
    endpoint.stripe.becomes(endpoint.at_the_bank(), "succeeded")
    event = endpoint.told("succeeded")
    endpoint.io.failing = failing
    status, problem = endpoint.post(body_of(event))
    assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")
    assert endpoint.counted[-1] == "EventPutOff"
    endpoint.io.failing = ""
    assert endpoint.send(event) == 200
    assert endpoint.row.state is PaymentState.SUCCEEDED
    assert endpoint.counted.count("Reconciled.SUCCEEDED") == 1


def test_a_failed_cancel_leaves_the_row_for_the_next_time(endpoint: Endpoint) -> None:
    """It is not declined before nobody can pay it any more."""
    intent = endpoint.at_the_bank()
    endpoint.stripe.becomes(intent, "requires_payment_method")
    endpoint.io.failing = "stripe cancel"
    assert endpoint.send(endpoint.told("payment_failed")) == 503
    assert endpoint.row.state is PaymentState.REQUIRES_ACTION


def test_a_secret_that_cannot_be_read_is_an_outage(aws: None, sample: Sample) -> None:
    """Nobody is refused for it: Stripe sends again, and by then the secret is there."""
    environment = {
        "FUNCTION_TIMEOUT_SECONDS": "20",
        "CHARGES_TABLE": "charges",
        "STRIPE_EVENTS_TABLE": "stripe-events",
        "STRIPE_SECRET_ARN": "stripe-api-key",
        "STRIPE_WEBHOOK_SECRET_ARN": "stripe-webhook-secret",
        "STRIPE_API_BASE": "http://127.0.0.1:9",
    }
    application = Application(environment)
    event = sample("receive_stripe_event/unknown_type")
    assert application.api.resolver.resolve(event, LambdaContext())["statusCode"] == 503
    secrets = boto3.client("secretsmanager")
    secrets.create_secret(Name="stripe-api-key", SecretString="sk_test_x")
    secrets.create_secret(Name="stripe-webhook-secret", SecretString=f"{STRIPE_WEBHOOK_SECRET}\n")
    assert application.api.resolver.resolve(event, LambdaContext())["statusCode"] == 200


# ---------------------------------------------------------------- the samples


@pytest.mark.parametrize("name", SAMPLES["receive_stripe_event"])
def test_each_sample_is_what_its_name_says(endpoint: Endpoint, name: str) -> None:
    """They are signed for the year 2100 with the local run's secret: Stripe's verifier refuses only what is old."""
    status = endpoint.resolve(endpoint.sample(f"receive_stripe_event/{name}"))[0]
    assert status == SAMPLES["receive_stripe_event"][name]
