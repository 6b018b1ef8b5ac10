"""stripe_webhook: what Stripe has signed is reconciled, in any order and however often; nothing else is.

DynamoDB and Stripe are in memory here, held to the others' behaviour by tests/contract.
"""

import base64
import itertools
import json
import time
from typing import Any

import boto3
import pytest

from local.given_stripe import STRIPE_WEBHOOK_SECRET
from local.samples import SAMPLES
from local.stripe_standin.webhooks import signature
from onecharge.contract.refunds import RefundState
from onecharge.contract.states import PaymentState
from onecharge.payments.stripe_events import EventDeferred
from stripe_webhook.app import Application
from testing.fake_stripe import DECLINED, THREE_D_SECURE, VISA, no_answer, wrong_key
from testing.harness import LambdaContext, Log, Sample
from testing.payment_service import REQUIRES_ACTION_SECONDS, T0, order_id
from testing.tools import Cancellation
from testing.webhook_harness import Event, WebhookHarness, body_of


@pytest.fixture
def endpoint(log: Log, sample: Sample) -> WebhookHarness:
    return WebhookHarness(log, sample)


# ---------------------------------------------------------------- a PaymentIntent's event


def test_an_order_that_is_paid_at_the_bank_is_finalized(endpoint: WebhookHarness) -> None:
    """Within the request of the webhook."""
    assert endpoint.send(endpoint.paid_at_the_bank()) == 200
    assert (endpoint.row.state, endpoint.row.payment_intent_id) == (PaymentState.SUCCEEDED, "pi_0")


def test_a_failed_authentication_is_a_decline(endpoint: WebhookHarness) -> None:
    """Another card is another attempt, of the same PaymentIntent: so it stays open."""
    error = {"code": "payment_intent_authentication_failure", "type": "card_error"}
    event = endpoint.stripe.becomes(endpoint.at_the_bank(), "requires_payment_method", last_payment_error=error)
    assert endpoint.send(event) == 200
    assert endpoint.row.state is PaymentState.DECLINED
    assert endpoint.payments.item()["decline_code"] == {"S": "payment_intent_authentication_failure"}
    endpoint.payments.charge(card=VISA, attempt=2)
    assert (endpoint.row.state, len(endpoint.stripe.intents)) == (PaymentState.SUCCEEDED, 1)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_events_are_harmless_in_any_order_and_in_duplicate(endpoint: WebhookHarness, order: tuple[int, ...]) -> None:
    """The customer is asked, fails, tries again and pays: whatever comes first, it is paid, and no alarm is raised."""
    intent_id = endpoint.at_the_bank()
    endpoint.stripe.becomes(intent_id, "requires_payment_method")
    endpoint.stripe.becomes(intent_id, "succeeded")
    for index in (*order, *order):
        assert endpoint.send(endpoint.stripe.events[index]) == 200
    assert endpoint.row.state is PaymentState.SUCCEEDED
    assert "Alarm" not in endpoint.counted


def test_a_duplicate_costs_one_read(endpoint: WebhookHarness) -> None:
    """And no request to Stripe."""
    event = endpoint.paid_at_the_bank()
    endpoint.send(event)
    assert endpoint.send(event) == 200
    assert (endpoint.io.asked, endpoint.stripe.asked) == (["dynamodb GetItem"], [])
    assert endpoint.counted == ["Reconciled.SUCCEEDED", "MoneyCharged", "EventProcessed", "EventReplayed"]


def test_a_row_that_a_worker_holds_is_left_to_it(endpoint: WebhookHarness) -> None:
    """2xx, since the worker finalizes it: an event that is faster is the usual case."""
    endpoint.payments.crash_after("confirm")
    held = endpoint.row
    assert endpoint.send(endpoint.stripe.events[-1]) == 200
    assert endpoint.io.asked == ["dynamodb GetItem", "dynamodb GetItem", "dynamodb PutItem"]
    assert (endpoint.row, endpoint.stripe.asked) == (held, [])


def test_a_row_whose_worker_crashed_is_finalized(endpoint: WebhookHarness) -> None:
    """Once its lease has expired."""
    endpoint.payments.crash_after("confirm")
    endpoint.payments.now += endpoint.payments.bounds.lease_seconds
    assert endpoint.send(endpoint.stripe.events[-1]) == 200
    assert endpoint.row.state is PaymentState.SUCCEEDED


def test_a_late_success_is_written_over_a_decline(endpoint: WebhookHarness) -> None:
    """What Stripe says later wins, and an alarm counts it."""
    endpoint.payments.charge(card=DECLINED)
    endpoint.counted.clear()
    assert endpoint.send(endpoint.stripe.becomes("pi_0", "succeeded")) == 200
    assert endpoint.row.state is PaymentState.SUCCEEDED
    assert endpoint.counted == ["Reconciled.SUCCEEDED", "MoneyCharged", "PaidAfterDecline", "Alarm", "EventProcessed"]


def test_a_lost_row_is_recovered(endpoint: WebhookHarness) -> None:
    """From the PaymentIntent's own metadata: the order is paid, and will not be charged again."""
    endpoint.paid()
    endpoint.dynamodb.tables["payments"].clear()
    assert endpoint.send(endpoint.stripe.events[-1]) == 200
    row = endpoint.row
    assert (row.state, row.payment_intent_id) == (PaymentState.SUCCEEDED, "pi_0")
    assert (row.request.amount_minor, row.request.currency, row.request.placed_at) == (3000, "EUR", T0)
    assert endpoint.counted == ["RowRecovered", "Alarm", "EventProcessed"]
    endpoint.payments.charge()
    assert len(endpoint.stripe.intents) == 1


def test_a_charge_without_a_row_that_says_too_little_is_an_alarm(endpoint: WebhookHarness) -> None:
    """It is somebody's money: no row is made up, a person has to check."""
    endpoint.paid()
    endpoint.dynamodb.tables["payments"].clear()
    del endpoint.stripe.intents["pi_0"]["metadata"]["placed_at"]
    assert endpoint.send(endpoint.stripe.events[-1]) == 200
    assert endpoint.counted == ["ChargeWithoutRow", "Alarm", "EventProcessed"]
    assert endpoint.dynamodb.tables["payments"] == {}


@pytest.mark.parametrize("has_row", [True, False])
def test_an_event_that_only_a_webhook_knows_is_an_alarm(endpoint: WebhookHarness, has_row: bool) -> None:
    """Stripe has no such PaymentIntent, and no row names it: nothing is written, and nothing sent again."""
    if has_row:
        endpoint.at_the_bank()
    metadata = {"order_id": order_id("a"), "placed_at": str(T0)}
    money: dict[str, Any] = {"amount": 3000, "currency": "eur"}
    thing = {"id": "pi_unheard_of", "status": "succeeded", "metadata": metadata, **money}
    assert endpoint.send(event_of("payment_intent.succeeded", "payment_intent", **thing)) == 200
    assert endpoint.counted == ["EventUnknownToStripe", "Alarm", "EventProcessed"]
    assert len(endpoint.dynamodb.tables.get("payments", {})) == has_row
    assert not has_row or endpoint.row.state is PaymentState.REQUIRES_ACTION


def test_a_canceled_order_that_is_charged_is_refunded(endpoint: WebhookHarness) -> None:
    """It cannot happen by design; if it does: an alarm, and its payment is given to the refund."""
    assert endpoint.payments.cancel() is Cancellation.CANCELED
    endpoint.counted.clear()
    assert endpoint.send(endpoint.stripe.becomes("pi_0", "succeeded")) == 200
    assert endpoint.payments.refunded == [(order_id("a"), "pi_0")]
    assert endpoint.row.state is PaymentState.CANCELED
    assert endpoint.counted == ["CanceledOrderCharged", "Alarm", "EventProcessed"]


def test_a_refund_that_fails_has_the_event_sent_again(endpoint: WebhookHarness) -> None:
    """Of a canceled order: it is not processed before its refund is made."""
    endpoint.payments.cancel()
    event = endpoint.stripe.becomes("pi_0", "succeeded")
    endpoint.payments.refund_failing = lambda: EventDeferred("another worker refunds it")
    assert endpoint.send(event) == 503
    endpoint.payments.refund_failing = None
    assert endpoint.send(event) == 200
    assert len(endpoint.payments.refunded) == 1


def test_another_payment_intent_that_succeeds_too_is_an_alarm(endpoint: WebhookHarness) -> None:
    """As after two restored tables: the row keeps the first."""
    endpoint.paid()
    endpoint.stripe.intents["pi_9"] = {**endpoint.stripe.intents["pi_0"], "id": "pi_9"}
    assert endpoint.send(endpoint.stripe.becomes("pi_9", "succeeded")) == 200
    assert endpoint.counted == ["ChargedTwice", "Alarm", "EventProcessed"]
    assert endpoint.row.payment_intent_id == "pi_0"


def test_the_requested_cancellation_of_a_failed_authentication_stays_unfinished(endpoint: WebhookHarness) -> None:
    """DECLINED would take the row out of the index, where the reconciler finds it to finish the cancellation."""
    endpoint.at_the_bank()
    assert endpoint.payments.request_cancel(card=THREE_D_SECURE) is Cancellation.CANCELING
    assert endpoint.send(endpoint.stripe.becomes("pi_0", "requires_payment_method")) == 200
    state_after_event = endpoint.row.state
    assert endpoint.payments.reconcile()
    assert (state_after_event, endpoint.row.state) == (PaymentState.REQUIRES_ACTION, PaymentState.CANCELED)


def test_an_expired_authentication_has_its_code_whoever_notices_it(endpoint: WebhookHarness) -> None:
    """The event of the cancel may be faster than whoever has canceled."""
    endpoint.at_the_bank()
    endpoint.payments.now += REQUIRES_ACTION_SECONDS
    canceled = endpoint.stripe.becomes("pi_0", "canceled", cancellation_reason="abandoned")
    assert endpoint.send(canceled) == 200
    assert endpoint.row.state is PaymentState.DECLINED
    assert endpoint.payments.item()["decline_code"] == {"S": "requires_action_expired"}


def test_an_event_of_no_interest_is_acknowledged(endpoint: WebhookHarness) -> None:
    """Another type, or a PaymentIntent of somebody else's, without asking anybody anything."""
    assert endpoint.send(event_of("customer.created", "customer", id="cus_1")) == 200
    for metadata in ({}, {"order_id": "4711"}):
        foreign = event_of("payment_intent.succeeded", "payment_intent", id="pi_9", metadata=metadata)
        assert endpoint.send(foreign) == 200
        assert endpoint.io.asked == []
    assert set(endpoint.counted) == {"EventIgnored"}


def test_thin_events_are_acknowledged(endpoint: WebhookHarness) -> None:
    """Stripe's v2 events say nothing but an id: refused, each would be sent again for days. They are counted."""
    thin = {"id": "evt_1", "object": "v2.core.event", "type": "v1.billing.meter.error_report_triggered"}
    assert endpoint.send(thin) == 200
    assert endpoint.counted == ["EventIgnored"]
    assert endpoint.send(thin, secret="whsec_guessed") == 400


# ---------------------------------------------------------------- refunds and disputes


def event_of(type_: str, kind: str, *, event_id: str = "evt_after", **thing: Any) -> Event:
    data = {"object": {"object": kind, **thing}}
    return {"id": event_id, "object": "event", "type": type_, "created": T0, "data": data}


def dispute(kind: str, status: str, *, event_id: str = "evt_after", **changes: Any) -> Event:
    thing = {"id": "dp_1", "payment_intent": "pi_0", "metadata": {}, "status": status, **changes}
    return event_of(f"charge.dispute.{kind}", "dispute", event_id=event_id, **thing)


def test_a_refund_made_by_hand_shows_on_the_row(endpoint: WebhookHarness) -> None:
    """By the metadata that Stripe copies to the charge, and as Stripe shows it by now, whatever comes late."""
    endpoint.paid()
    first, second = endpoint.stripe.refund("pi_0", 1000), endpoint.stripe.refund("pi_0", 2000)
    assert endpoint.send(second) == 200
    written = endpoint.row
    assert (written.state, written.amount_refunded_minor) == (PaymentState.SUCCEEDED, 3000)
    assert endpoint.send(first) == 200
    assert endpoint.row == written
    assert endpoint.counted == ["ChargeRefunded", "EventProcessed", "EventProcessed"]


@pytest.mark.parametrize("disordered", [False, True])
def test_a_refund_by_hand_that_fails_is_refunded_no_more(endpoint: WebhookHarness, disordered: bool) -> None:
    """It names no order, its PaymentIntent does; the event of the refund itself may come after that of its failure."""
    endpoint.paid()
    made, others = endpoint.stripe.refund("pi_0", 1000), endpoint.stripe.refund("pi_0", 200)
    endpoint.send(others if disordered else made)
    assert endpoint.row.amount_refunded_minor == 1200
    assert endpoint.send(endpoint.stripe.refund_fails("re_0")) == 200
    assert endpoint.row.amount_refunded_minor == 200
    assert endpoint.send(made if disordered else others) == 200
    assert endpoint.row.amount_refunded_minor == 200


def test_a_refund_of_ours_that_fails_is_refunded_no_more(endpoint: WebhookHarness) -> None:
    """Its own row becomes FAILED, and the figure falls."""
    endpoint.paid()
    endpoint.send(endpoint.stripe.refund("pi_0", 1000, order_id=order_id("a"), refund_id=f"rfd_{'1' * 32}"))
    assert endpoint.row.amount_refunded_minor == 1000
    assert endpoint.send(endpoint.stripe.refund_fails("re_0")) == 200
    assert endpoint.row.amount_refunded_minor == 0


def test_a_figure_that_fell_while_it_was_written_is_asked_again(endpoint: WebhookHarness) -> None:
    """The event of the failure is handled in between, and finds nothing to write: the row shows no refund yet."""
    endpoint.paid()
    made = endpoint.stripe.refund("pi_0", 1000)
    record, failed = endpoint.payments.store.record_refunded, list[Event]()

    def fails_meanwhile(*given: Any) -> bool:
        if not failed:
            failed.append(endpoint.stripe.refund_fails("re_0"))
            endpoint.send(failed[0])
        return record(*given)

    object.__setattr__(endpoint.payments.store, "record_refunded", fails_meanwhile)
    assert endpoint.send(made) == 200
    assert (len(failed), endpoint.row.amount_refunded_minor) == (1, 0)


def test_a_row_that_keeps_changing_defers_the_event(endpoint: WebhookHarness) -> None:
    """Stripe sends it again."""
    endpoint.paid()
    made = endpoint.stripe.refund("pi_0", 1000)

    def changes(reached: str) -> None:
        if reached == "refunds":
            endpoint.payments.store.reemit_outcome(endpoint.row, now=T0)

    endpoint.stripe.before = changes
    assert endpoint.send(made) == 503
    endpoint.stripe.before = lambda _: None
    assert (endpoint.send(made), endpoint.row.amount_refunded_minor) == (200, 1000)


def test_a_dispute_is_an_alarm_and_shows_on_the_row(endpoint: WebhookHarness) -> None:
    """It names no order: its PaymentIntent does. A duplicate is counted once."""
    endpoint.paid()
    created = dispute("created", "needs_response")
    assert [endpoint.send(created), endpoint.send(created)] == [200, 200]
    assert endpoint.counted == ["ChargeDisputed", "Alarm", "EventProcessed", "EventReplayed"]
    assert endpoint.payments.item()["dispute_status"] == {"S": "needs_response"}
    [line] = [line for line in endpoint.log.lines if line["level"] == "ERROR"]
    assert (line["order_id"], line["payment_intent_id"]) == (order_id("a"), "pi_0")


def test_a_dispute_that_is_closed_stays_closed(endpoint: WebhookHarness) -> None:
    """Whatever comes late; only its creation is an alarm."""
    endpoint.paid()
    endpoint.send(dispute("updated", "under_review", event_id="evt_1"))
    assert endpoint.send(dispute("closed", "lost", event_id="evt_2")) == 200
    assert "Alarm" not in endpoint.counted
    assert endpoint.send(dispute("created", "needs_response", event_id="evt_3")) == 200
    assert endpoint.payments.item()["dispute_status"] == {"S": "lost"}


def test_somebody_elses_dispute_is_acknowledged(endpoint: WebhookHarness) -> None:
    """As of a charge without a PaymentIntent."""
    assert endpoint.send(dispute("created", "needs_response", payment_intent=None)) == 200
    assert endpoint.counted == ["ChargeEventIgnored", "EventProcessed"]


def test_a_dispute_that_our_key_does_not_know_is_sent_again(endpoint: WebhookHarness) -> None:
    """The key may be another account's for a while: an alarm, and nothing is dropped."""
    assert endpoint.send(dispute("created", "needs_response", payment_intent="pi_of_another_account")) == 503
    assert {"EventUnknownToStripe", "Alarm"} <= set(endpoint.counted)


def test_an_event_of_a_connected_account_is_acknowledged(endpoint: WebhookHarness) -> None:
    """Its objects are not ours to read."""
    event = dispute("created", "needs_response", payment_intent="pi_of_another_account") | {"account": "acct_1"}
    assert endpoint.send(event) == 200
    assert endpoint.counted == ["EventIgnored"]


def test_a_live_event_in_a_sandbox_is_deferred(endpoint: WebhookHarness) -> None:
    """With an alarm, and nothing is asked or changed: the endpoint, or our key, is another environment's."""
    event = endpoint.paid_at_the_bank()
    rows = str(endpoint.dynamodb.tables)
    assert endpoint.send(event | {"livemode": True}) == 503
    assert endpoint.counted == ["EventOfOtherMode", "Alarm", "WebhookDeferred"]
    assert (endpoint.stripe.asked, str(endpoint.dynamodb.tables)) == ([], rows)
    assert endpoint.send(event | {"livemode": False}) == 200


def test_a_refund_of_another_payment_intent_is_not_the_orders(endpoint: WebhookHarness) -> None:
    """The second charge of an order was refunded by hand: the first is still paid."""
    endpoint.paid()
    endpoint.stripe.intents["pi_9"] = {**endpoint.stripe.intents["pi_0"], "id": "pi_9"}
    assert endpoint.send(endpoint.stripe.refund("pi_9", 3000)) == 200
    assert endpoint.row.amount_refunded_minor == 0
    assert endpoint.counted == ["ChargeEventOfAnotherPaymentIntent", "EventProcessed"]


@pytest.mark.parametrize("kind", ["refund.updated", "refund.failed"])
def test_what_becomes_of_a_refund_is_handled_by_refunds(endpoint: WebhookHarness, kind: str) -> None:
    """Once: a duplicate is recognized by its id."""
    endpoint.paid()
    refund_id = f"rfd_{'1' * 32}"
    endpoint.stripe.refund("pi_0", 1000, order_id=order_id("a"), refund_id=refund_id)
    event = endpoint.stripe.refund_fails("re_0") | {"type": kind}
    assert [endpoint.send(event), endpoint.send(event)] == [200, 200]
    refund = endpoint.payments.refund_store.read(order_id("a"), refund_id)
    assert refund is not None
    assert (refund.state, refund.failure_code) == (RefundState.FAILED, "lost_or_stolen_card")
    assert endpoint.counted[-2:] == ["EventProcessed", "EventReplayed"]


# ---------------------------------------------------------------- whom an event is taken from


def refused(endpoint: WebhookHarness, body: str, header: str) -> dict[str, Any]:
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
def test_what_stripe_did_not_sign_is_refused(endpoint: WebhookHarness, header: Any) -> None:
    """400, the same for every reason, and nothing is asked or changed."""
    body = body_of(endpoint.paid_at_the_bank())
    problem = refused(endpoint, body, header(body))
    assert problem.pop("correlation_id")
    assert problem == {
        "type": "urn:onecharge:problem:not-from-stripe",
        "title": "Bad Request",
        "status": 400,
        "detail": "The signature is not Stripe's.",
    }


@pytest.mark.parametrize("body", ["", "no Base64!", base64.b64encode(b"\xff\xfe").decode()])
def test_a_body_that_cannot_be_read_is_refused(endpoint: WebhookHarness, body: str) -> None:
    """As any other that Stripe did not sign."""
    http = endpoint.sample("stripe_webhook/payment_intent_payment_failed")
    assert http["isBase64Encoded"]
    assert endpoint.resolve(http | {"body": body})[0] == 400


def test_a_signature_is_good_for_five_minutes(endpoint: WebhookHarness) -> None:
    """Stripe's own tolerance."""
    assert endpoint.send(endpoint.paid_at_the_bank(), age_seconds=290) == 200
    assert endpoint.row.state is PaymentState.SUCCEEDED


@pytest.mark.parametrize("encoded", [False, True])
def test_the_body_is_verified_as_it_came(endpoint: WebhookHarness, encoded: bool) -> None:
    """White space, escapes and the order of names are Stripe's; the gateway in between may encode it."""
    event = endpoint.paid_at_the_bank()
    escaped = json.dumps({"note": "caf\u00e9", **dict(reversed(event.items()))}, indent=1)
    body = f"\n {escaped}".replace('"evt', '"\\u0065vt') + " \t\n"
    header = signature(body, STRIPE_WEBHOOK_SECRET, int(time.time()))
    sent = base64.b64encode(body.encode()).decode() if encoded else body
    assert endpoint.request(sent, header, encoded=encoded)[0] == 200
    assert endpoint.row.state is PaymentState.SUCCEEDED


def test_while_stripe_signs_with_two_secrets_either_is_good(endpoint: WebhookHarness) -> None:
    """Whether ours is the old one still, or the new one by now; and once Stripe signs with the new one alone."""
    event = endpoint.paid_at_the_bank()
    now = int(time.time())
    both = ",".join(
        [signature(body_of(event), STRIPE_WEBHOOK_SECRET, now), signature(body_of(event), "whsec_new", now)]
    )
    assert endpoint.send(event, header=both) == 200
    endpoint.secrets.cached = endpoint.secrets.actual = ("whsec_new",)
    assert endpoint.send(event, header=both) == 200
    assert endpoint.send(event) == 400
    assert endpoint.send(event, secret="whsec_new") == 200


def test_two_endpoints_may_send_while_the_secret_is_rotated(endpoint: WebhookHarness) -> None:
    """Each signs with its own secret: ours are the new one and the former one."""
    event = endpoint.paid_at_the_bank()
    endpoint.secrets.cached = endpoint.secrets.actual = ("whsec_new", STRIPE_WEBHOOK_SECRET)
    assert endpoint.send(event, secret="whsec_new") == 200
    assert endpoint.send(event) == 200
    assert endpoint.send(event, secret="whsec_guessed") == 400


def test_a_secret_that_was_rotated_a_moment_ago_refuses_no_event(endpoint: WebhookHarness) -> None:
    """The first event that it does not verify has it read anew."""
    event = endpoint.paid_at_the_bank()
    endpoint.secrets.actual = ("whsec_new",)
    assert endpoint.send(event, secret="whsec_new") == 200
    assert (endpoint.secrets.read, "SignatureRefused" in endpoint.counted) == (1, False)


def test_nothing_sensitive_is_logged(endpoint: WebhookHarness, capsys: pytest.CaptureFixture[str]) -> None:
    """No secret, no signature, no body, no client secret: not of a good event, a forged one, or one that fails."""
    body = body_of(endpoint.paid_at_the_bank())
    good, forged = (
        signature(body, STRIPE_WEBHOOK_SECRET, int(time.time())),
        signature(body, "whsec_guessed", 4102444800),
    )
    endpoint.request(body, forged)
    endpoint.stripe.failing[""] = no_answer
    endpoint.request(body, good)
    endpoint.stripe.failing.clear()
    endpoint.request(body, good)
    malformed = '["pi_secret_of_a_customer"]'
    assert endpoint.post(malformed)[0] == 500
    printed = capsys.readouterr()
    said = endpoint.log.text + printed.out + printed.err
    assert order_id("a") in said
    for secret in ("whsec_", good[-64:], forged[-64:], "pi_secret", '"object"', "metadata"):
        assert secret not in said, secret


# ---------------------------------------------------------------- outages


@pytest.mark.parametrize("failing", ["dynamodb GetItem", "dynamodb UpdateItem", "dynamodb PutItem", "retrieve"])
def test_what_cannot_be_processed_is_deferred(endpoint: WebhookHarness, failing: str) -> None:
    """503, and the event is not taken for processed: when it is sent again, it is."""
    event = endpoint.paid_at_the_bank()
    endpoint.io.failing = failing
    endpoint.stripe.failing[failing] = no_answer
    status, problem = endpoint.post(body_of(event))
    assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")
    assert endpoint.counted[-1] == "WebhookDeferred"
    endpoint.io.failing = ""
    endpoint.stripe.failing.clear()
    assert endpoint.send(event) == 200
    assert endpoint.row.state is PaymentState.SUCCEEDED
    assert endpoint.counted.count("Reconciled.SUCCEEDED") == 1


@pytest.mark.parametrize("wrong", [wrong_key, None])
def test_a_wrong_key_is_an_alarm_and_loses_no_event(endpoint: WebhookHarness, wrong: Any) -> None:
    """Of no account, or of another one, to which the PaymentIntent is unknown."""
    event = endpoint.paid_at_the_bank()
    if wrong:
        endpoint.stripe.failing["retrieve"] = wrong
    intents = dict(endpoint.stripe.intents)
    if not wrong:
        endpoint.stripe.intents.clear()
    assert endpoint.send(event) == 503
    assert endpoint.counted == ["WebhookDeferred", "Alarm"]
    endpoint.stripe.failing.clear()
    endpoint.stripe.intents |= intents
    assert endpoint.send(event) == 200
    assert endpoint.row.state is PaymentState.SUCCEEDED


@pytest.mark.parametrize(("times", "status"), [(1, 200), (2, 503)])
def test_a_row_that_changes_meanwhile_is_read_once_more(endpoint: WebhookHarness, times: int, status: int) -> None:
    """At once; if it changes again, Stripe sends the event again."""
    event = endpoint.paid_at_the_bank()
    left = [times]

    def changes(reached: str) -> None:
        if reached == "retrieve" and left[0]:
            left[0] -= 1
            endpoint.payments.store.reemit_outcome(endpoint.row, now=T0)

    endpoint.stripe.before = changes
    assert endpoint.send(event) == status
    assert endpoint.send(event) == 200
    assert endpoint.row.state is PaymentState.SUCCEEDED


def test_a_secret_that_cannot_be_read_is_an_outage(aws: None, sample: Sample) -> None:
    """Nobody is refused for it: Stripe sends again, and by then the secret is there."""
    environment = {
        "FUNCTION_TIMEOUT_SECONDS": "20",
        "PAYMENTS_TABLE": "payments",
        "REFUNDS_TABLE": "refunds",
        "REQUIRES_ACTION_SECONDS": "43200",
        "STRIPE_EVENTS_TABLE": "stripe-events",
        "STRIPE_SECRET_ARN": "stripe-api-key",
        "CHARGES_PER_SECOND": "7",
        "CHARGE_CONCURRENCY": "2",
        "LOOK_UP_PLACED_BEFORE_SECONDS": "0",
        "STRIPE_WEBHOOK_SECRET_ARN": "stripe-webhook-secret",
        "STRIPE_API_BASE": "http://127.0.0.1:9",
    }
    application = Application(environment)
    event = sample("stripe_webhook/unknown_type")
    assert application.route.resolver.resolve(event, LambdaContext())["statusCode"] == 503
    secrets = boto3.client("secretsmanager")
    secrets.create_secret(Name="stripe-api-key", SecretString="sk_test_x")
    secrets.create_secret(Name="stripe-webhook-secret", SecretString=f"{STRIPE_WEBHOOK_SECRET}\n")
    assert application.route.resolver.resolve(event, LambdaContext())["statusCode"] == 200


# ---------------------------------------------------------------- the samples


@pytest.mark.parametrize("name", SAMPLES["stripe_webhook"])
def test_each_sample_is_what_its_name_says(endpoint: WebhookHarness, name: str) -> None:
    """They are signed for the year 2100 with the local run's secret: Stripe's verifier refuses only what is old."""
    status = endpoint.resolve(endpoint.sample(f"stripe_webhook/{name}"))[0]
    assert status == SAMPLES["stripe_webhook"][name]
