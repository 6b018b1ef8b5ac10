"""stripe_eventbridge: an event on our partner bus is reconciled as a webhook is; whatever else is in the queue is not.

The deployed application runs over moto's AWS and the stand-in.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import boto3
import pytest

import stripe_eventbridge.app
from local.partner_events import PARTNER_EVENT_SOURCE, envelope_of
from local.samples import SAMPLES
from local.stripe_standin.faults import Fault
from local.stripe_standin.server import running_standin
from testing.harness import LambdaContext, Sample
from testing.payment_functions import PaymentFunctions, placed

THREE_D_SECURE = "pm_card_threeDSecure2Required"
ACCOUNT = "123456789012"


class Bus:
    """The function behind its queue, and an order that waits for its customer."""

    def __init__(self, functions: PaymentFunctions) -> None:
        self.functions, self.stripe = functions, functions.stripe
        environment = functions.environment("stripe_eventbridge") | {"STRIPE_EVENT_SOURCE_NAME": PARTNER_EVENT_SOURCE}
        self.dlq_url = environment["STRIPE_EVENTS_DLQ_URL"]
        self.application = stripe_eventbridge.app.Application(environment)
        functions.charge(placed("a", card=THREE_D_SECURE))

    @property
    def intent_id(self) -> str:
        [intent] = self.stripe.ledger().payment_intents
        return str(intent["id"])

    @property
    def state(self) -> str:
        return self.functions.state(placed("a").order_id)

    def paid_at_the_bank(self) -> Mapping[str, Any]:
        """The event of a success that the row does not show yet."""
        self.stripe.authenticate(self.intent_id)
        [event] = self.functions.events("payment_intent.succeeded")
        return event

    def puts(self, *events: Mapping[str, Any], **envelope: str) -> list[str]:
        """Deliver events in this envelope; returns the messages that SQS is to deliver again."""
        bodies = [json.dumps(envelope_of(each, account=ACCOUNT) | envelope) for each in events]
        return self.functions.deliver(self.application.consumer, *bodies)

    def dead_letters(self) -> list[dict[str, Any]]:
        received = boto3.client("sqs").receive_message(
            QueueUrl=self.dlq_url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        return list(received.get("Messages", []))  # type: ignore[arg-type]


@pytest.fixture
def bus(aws: None, sample: Sample) -> Iterator[Bus]:
    with running_standin() as standin:
        yield Bus(PaymentFunctions(standin.base_url, sample))


def test_an_order_that_is_paid_at_the_bank_is_finalized(bus: Bus) -> None:
    """As by a webhook; a duplicate changes nothing."""
    event = bus.paid_at_the_bank()
    assert bus.puts(event, event) == []
    assert bus.puts(event) == []
    assert bus.state == "SUCCEEDED"
    assert len(bus.stripe.ledger().charges) == 1


def test_a_forged_event_finalizes_nothing(bus: Bus) -> None:
    """Whoever could send to the queue: an event is a hint, and Stripe is asked what holds."""
    [created] = bus.functions.events("payment_intent.created")
    forged = json.loads(json.dumps(created)) | {"id": "evt_forged", "type": "payment_intent.succeeded"}
    forged["data"]["object"] |= {"status": "succeeded", "amount_received": 1099}
    assert bus.puts(forged) == []
    assert bus.state == "REQUIRES_ACTION"
    assert bus.stripe.ledger().charges == ()


@pytest.mark.parametrize(
    ("envelope", "reason"),
    [
        ({"source": "aws.partner/stripe.com/ed_of_another_account"}, "source"),
        ({"source": "my.own.source"}, "source"),
        ({"detail-type": "charge.refunded"}, "detail-type"),
    ],
)
def test_what_is_not_from_our_event_source_is_given_up(bus: Bus, envelope: dict[str, str], reason: str) -> None:
    """To the DLQ, with the reason; of another Stripe account's events Stripe is asked nothing."""
    event = bus.paid_at_the_bank()
    before = bus.stripe.ledger().counts["requests"]
    assert bus.puts(event, **envelope) == []
    [dead] = bus.dead_letters()
    assert reason in dead["MessageAttributes"]["reason"]["StringValue"]
    assert (bus.state, bus.stripe.ledger().counts["requests"]) == ("REQUIRES_ACTION", before)


@pytest.mark.parametrize("body", ["no JSON", "{}", '{"detail": 1}', "[]"])
def test_what_is_no_event_is_given_up(bus: Bus, body: str) -> None:
    """It would never be one."""
    assert bus.functions.deliver(bus.application.consumer, body) == []
    assert len(bus.dead_letters()) == 1


def test_a_live_event_in_a_sandbox_changes_nothing(bus: Bus) -> None:
    """It stays in the queue, with an alarm: the key may be the wrong one."""
    event = {**bus.paid_at_the_bank(), "livemode": True}
    assert len(bus.puts(event)) == 1
    assert bus.state == "REQUIRES_ACTION"
    assert bus.puts(event | {"livemode": False}) == []
    assert bus.state == "SUCCEEDED"


def test_an_event_of_a_connected_account_is_acknowledged(bus: Bus) -> None:
    """Its objects are not ours to read."""
    before = bus.stripe.ledger().counts["requests"]
    assert bus.puts({**bus.paid_at_the_bank(), "account": "acct_other"}) == []
    assert (bus.state, bus.stripe.ledger().counts["requests"]) == ("REQUIRES_ACTION", before)


def test_an_old_event_that_is_replayed_changes_nothing(bus: Bus) -> None:
    """From an archive of EventBridge, say, out of order and without its id being remembered."""
    paid = bus.paid_at_the_bank()
    bus.puts(paid)
    [waiting] = bus.functions.events("payment_intent.requires_action")
    assert bus.puts(waiting, {**paid, "id": "evt_forgotten"}) == []
    assert bus.state == "SUCCEEDED"


def test_an_outage_keeps_the_event_in_the_queue(bus: Bus) -> None:
    """Until Stripe answers."""
    event = bus.paid_at_the_bank()
    path = f"/v1/payment_intents/{bus.intent_id}"
    bus.stripe.add_fault(Fault.UNAVAILABLE_503, times=None, method="GET", path=path)
    assert len(bus.puts(event)) == 1
    assert bus.state == "REQUIRES_ACTION"
    bus.stripe.clear_faults()
    assert bus.puts(event) == []
    assert bus.state == "SUCCEEDED"


def test_a_thin_event_is_acknowledged(bus: Bus) -> None:
    """It carries only an id, and is never about a payment."""
    thin = {"id": "evt_thin", "object": "v2.core.event", "type": "v1.billing.meter.error_report_triggered"}
    assert bus.puts(thin) == []
    assert bus.dead_letters() == []


def test_nothing_sensitive_is_logged(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    """No client secret and no object: not of an event that is handled, deferred or given up."""
    event = bus.paid_at_the_bank()
    bus.puts(event, source="my.own.source")
    bus.puts({**event, "livemode": True})
    bus.puts(event)
    said = "\n".join(str(vars(record)) for record in caplog.records)
    assert placed("a").order_id in said
    for secret in ("_secret_", "client_secret", '"object"', "rk_test"):
        assert secret not in said, secret


@pytest.mark.parametrize("name", SAMPLES["stripe_eventbridge"])
def test_each_sample_is_what_its_name_says(bus: Bus, sample: Sample, name: str) -> None:
    """The response that is expected of the local run."""
    answer = bus.application.consumer.consume(sample(f"stripe_eventbridge/{name}"), LambdaContext())
    assert answer == SAMPLES["stripe_eventbridge"][name]
