"""Stripe's events are applied in any order and however often: the row follows what Stripe has.

DynamoDB and Stripe are in memory here, held to the others' behaviour by tests/contract.
"""

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from onecharge.contract.refunds import RefundState
from onecharge.contract.states import PaymentState
from onecharge.payments.after_charge import AfterCharge
from onecharge.payments.charge_rules import SEVERAL_SUCCEEDED
from onecharge.payments.refund_rules import FinalizeRefund, FrozenRefund
from onecharge.payments.time_bounds import LOOKUP_AGE_SECONDS, RETENTION_SECONDS
from tests.shop.builders import AMOUNT_MINOR, BOUNDS, DAY, PAYMENTS, T0
from tests.shop.endpoint import Endpoint, Event, event_of
from tests.shop.scripted_stripe import ASKS_FOR_ACTION, DECLINED, VISA, answer
from tests.shop.shop import order_id
from tests.shop.tools import Cancellation
from tests.support.harness import Log, Sample

REFUND_ID = f"rfd_{'1' * 32}"


@pytest.fixture
def endpoint(log: Log, sample: Sample) -> Endpoint:
    return Endpoint(log, sample=sample)


def dispute(payment_intent: str | None) -> Event:
    thing: dict[str, Any] = {"id": "dp_1", "payment_intent": payment_intent, "metadata": {}, "status": "needs_response"}
    return event_of("charge.dispute.created", "dispute", **thing)


def fails_at_the_write(endpoint: Endpoint, event: Event, write: str = "dynamodb UpdateItem") -> None:
    """DynamoDB does not answer when the row is to be written."""
    endpoint.io.failing = write
    assert endpoint.send(event) == 503
    endpoint.io.failing = ""


# ---------------------------------------------------------------- a PaymentIntent's event


def test_an_order_that_is_paid_at_the_bank_is_finalized(endpoint: Endpoint) -> None:
    """Within the request of the webhook."""
    assert endpoint.send(endpoint.paid_at_the_bank()) == 200
    assert (endpoint.payment().state, endpoint.payment().payment_intent_id) == (PaymentState.SUCCEEDED, "pi_0")
    assert endpoint.counted == ["Reconciled.SUCCEEDED", "MoneyCharged", "DeclinedShare", "EventProcessed"]


def test_a_failed_authentication_is_a_decline(endpoint: Endpoint) -> None:
    """Another card is another attempt, of the same PaymentIntent: so it stays open."""
    endpoint.stripe.bank_decides(endpoint.stripe.intent(endpoint.at_the_bank()), pays=False)
    assert endpoint.send(endpoint.stripe.webhooks[-1]) == 200
    assert endpoint.payment().state is PaymentState.DECLINED
    assert endpoint.row()["decline_code"] == "payment_intent_authentication_failure"
    endpoint.deliver(payment_method=VISA, attempt=2)
    assert (endpoint.payment().state, len(endpoint.stripe.intents)) == (PaymentState.SUCCEEDED, 1)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_events_are_harmless_in_any_order_and_in_duplicate(endpoint: Endpoint, order: tuple[int, ...]) -> None:
    """The customer is asked, fails, tries again and pays: whatever comes first, it is paid, and no alarm is raised."""
    intent_id = endpoint.at_the_bank()
    endpoint.stripe.show(intent_id, "requires_payment_method")
    endpoint.stripe.show(intent_id, "succeeded")
    for index in (*order, *order):
        assert endpoint.send(endpoint.stripe.webhooks[index]) == 200
    assert endpoint.payment().state is PaymentState.SUCCEEDED
    assert "Alarm" not in endpoint.counted


@pytest.mark.parametrize("change", ["paid", "declined", "refunded", "ours succeeded", "ours failed"])
def test_what_the_row_says_already_costs_no_request_to_stripe(endpoint: Endpoint, change: str) -> None:
    """However often it is sent. (Of a refund that failed all is read again: nothing else lowers the sum.)"""
    match change:
        case "paid":
            event = endpoint.paid_at_the_bank()
        case "declined":
            event = endpoint.stripe.show(endpoint.at_the_bank(), "requires_payment_method")
        case _:
            endpoint.paid()
            event = endpoint.stripe.refund_by_hand("pi_0", 1000, order_id=order_id("a"), refund_id=REFUND_ID)
    if change == "ours succeeded":
        make_refund(endpoint)
        event = endpoint.stripe.emits("refund.updated", endpoint.stripe.refunds[0].as_json())
    if change == "ours failed":
        event = endpoint.stripe.refund_fails("re_0")
    assert [endpoint.send(event) for _ in range(2)] == [200, 200]
    assert endpoint.io.asked == ["dynamodb GetItem"] * (2 if change == "ours failed" else 1)
    everything = ["retrieve", "retrieve", "refunds", "disputes", "warnings"]
    assert endpoint.stripe.operations == (everything if change == "ours failed" else [])


def test_a_row_that_a_worker_holds_is_left_to_it(endpoint: Endpoint) -> None:
    """2xx, since the worker finalizes it: an event that is faster is the usual case. Once its lease has expired, the
    worker has crashed, and the event finalizes the row."""
    endpoint.crash_after("confirm")
    held, event = endpoint.payment(), endpoint.stripe.webhooks[-1]
    assert [endpoint.send(event) for _ in range(2)] == [200, 200]
    assert (endpoint.io.asked, endpoint.stripe.requests) == (["dynamodb GetItem"], [])
    assert endpoint.payment() == held
    endpoint.now += BOUNDS.lease_seconds
    assert endpoint.send(event) == 200
    assert endpoint.payment().state is PaymentState.SUCCEEDED


def test_a_late_success_is_written_over_a_decline(endpoint: Endpoint) -> None:
    """What Stripe says later wins. The alarm comes before the write, so that it is never lost; another event of the
    same raises none."""
    endpoint.deliver(payment_method=DECLINED)
    endpoint.counted.clear()
    event = endpoint.stripe.show("pi_0", "succeeded")
    fails_at_the_write(endpoint, event)
    assert endpoint.counted == ["Discrepancy.PAID_LATE", "Alarm", "WebhookDeferred"]
    endpoint.counted.clear()
    assert [endpoint.send(event) for _ in range(2)] == [200, 200]
    assert endpoint.payment().state is PaymentState.SUCCEEDED
    ended = ["Reconciled.SUCCEEDED", "MoneyCharged", "DeclinedShare", "EventProcessed"]
    assert endpoint.counted == ["Discrepancy.PAID_LATE", "Alarm", *ended, "EventProcessed"]


def test_a_lost_row_is_recovered(endpoint: Endpoint) -> None:
    """From the PaymentIntent's own metadata: the order is paid, and will not be charged again. One alarm."""
    endpoint.paid()
    endpoint.dynamodb.tables[PAYMENTS].clear()
    assert [endpoint.send(endpoint.stripe.webhooks[-1]) for _ in range(2)] == [200, 200]
    row = endpoint.payment()
    assert (row.state, row.payment_intent_id) == (PaymentState.SUCCEEDED, "pi_0")
    assert (row.request.amount_minor, row.request.currency, row.request.placed_at) == (AMOUNT_MINOR, "EUR", T0)
    assert endpoint.counted == ["Discrepancy.LOST_ROW", "Alarm", "EventProcessed", "EventProcessed"]
    endpoint.deliver()
    assert len(endpoint.stripe.intents) == 1


def test_a_lost_row_of_two_charges_is_left_to_a_person(endpoint: Endpoint) -> None:
    """One of them may be refunded: the event that happens to come does not decide which one pays the order. The alarms
    come before the write."""
    endpoint.paid()
    endpoint.send(endpoint.stripe.webhooks[-1])
    event, alarms = endpoint.stripe.show(endpoint.another_payment_intent(), "succeeded"), []
    endpoint.dynamodb.tables[PAYMENTS].clear()
    for name in ("LOST_ROW", "PAID_TWICE"):
        alarms += [f"Discrepancy.{name}", "Alarm"]
    endpoint.counted.clear()
    fails_at_the_write(endpoint, event, "dynamodb PutItem")
    assert endpoint.counted == [*alarms, "WebhookDeferred"]
    assert endpoint.send(event) == 200
    assert (endpoint.payment().state, endpoint.payment().decline_code) == (PaymentState.NEEDS_REVIEW, SEVERAL_SUCCEEDED)
    assert endpoint.counted[-5:] == [*alarms, "EventProcessed"]


def test_a_lost_row_is_recovered_by_an_account_without_search(endpoint: Endpoint) -> None:
    """Also after a restore of both services' tables. The PaymentIntent has the order's time: the list begins there."""
    endpoint.paid()
    endpoint.dynamodb.tables[PAYMENTS].clear()
    endpoint.stripe.engine.behavior.has_search = False
    endpoint.look_up_placed_before = T0 + 1
    assert endpoint.send(endpoint.stripe.webhooks[-1]) == 200
    assert endpoint.payment().state is PaymentState.SUCCEEDED


def test_a_row_that_has_expired_is_not_written_again(endpoint: Endpoint) -> None:
    """500 days after the charge. A dispute is still an alarm; and the next order under the same key is charged."""
    endpoint.paid()
    endpoint.lose_row()
    endpoint.passes(500 * DAY)
    endpoint.stripe.forget_keys()
    assert endpoint.send(endpoint.stripe.refund_by_hand("pi_0", AMOUNT_MINOR)) == 200
    assert endpoint.send(endpoint.stripe.disputed("pi_0", "needs_response")) == 200
    assert [each for each in endpoint.counted if each in ("Alarm", "ChargeDisputed")] == ["ChargeDisputed", "Alarm"]
    assert endpoint.dynamodb.tables[PAYMENTS] == {}
    endpoint.deliver(placed_at=datetime.fromtimestamp(endpoint.now, UTC))
    assert endpoint.outcome == ("SUCCEEDED", "pi_1")


def test_a_recovered_row_expires_when_the_lost_one_would_have(endpoint: Endpoint) -> None:
    """500 days after the charge: the order does 30 days later, and may then be placed anew.

    The order is paid since the charge, so that it refuses refunds before this row is gone.
    """
    endpoint.paid()
    charged_at = endpoint.now
    endpoint.lose_row()
    endpoint.passes(40 * DAY)
    assert endpoint.send(endpoint.stripe.refund_by_hand("pi_0", 1)) == 200
    row = endpoint.row()
    assert (row["expires_at"], row["finalized_at"]) == (charged_at + RETENTION_SECONDS, charged_at)


def test_a_row_is_not_made_from_the_payment_intent_of_another_order(endpoint: Endpoint) -> None:
    """A person has refunded order a, and typed the id of an order that has no row: that one would be paid."""
    endpoint.paid()
    endpoint.stripe.refund_by_hand("pi_0", 1000, order_id=order_id("b"))
    assert endpoint.send(endpoint.stripe.refund_fails("re_0")) == 200
    assert list(endpoint.dynamodb.tables[PAYMENTS]) == [(order_id("a"),)]


@pytest.mark.parametrize("newest_first", [True, False])
def test_a_recovered_row_knows_its_refunds_and_disputes(endpoint: Endpoint, newest_first: bool) -> None:
    """The scheduled run reads the newest event first: the refund's finds no row. An order that was refunded in full is
    not PAID with nothing refunded, and a dispute is an alarm once more."""
    endpoint.paid()
    paid = endpoint.stripe.webhooks[-1]
    events = [
        paid,
        endpoint.stripe.refund_by_hand("pi_0", AMOUNT_MINOR),
        endpoint.stripe.disputed("pi_0", "needs_response"),
        endpoint.stripe.warned("pi_0"),
    ]
    endpoint.dynamodb.tables[PAYMENTS].clear()
    endpoint.counted.clear()
    seen = []
    for event in events[::-1] if newest_first else events:
        assert endpoint.send(event) == 200
        seen.append(endpoint.payment().after_charge)
    assert seen == [AfterCharge(AMOUNT_MINOR, {"du_0": "needs_response"}, "early_fraud_warning")] * 4
    metrics = ("Discrepancy.LOST_ROW", "ChargeDisputed", "FraudSuspected")
    assert [endpoint.counted.count(each) for each in metrics] == [1, 1, 1]


def test_a_charge_without_a_row_that_says_too_little_is_an_alarm(endpoint: Endpoint) -> None:
    """It is somebody's money: no row is made up, a person has to check."""
    endpoint.paid()
    endpoint.dynamodb.tables[PAYMENTS].clear()
    del endpoint.stripe.intent("pi_0").metadata["placed_at"]
    assert endpoint.send(endpoint.stripe.webhooks[-1]) == 200
    assert endpoint.counted == ["Discrepancy.WITHOUT_ROW", "Alarm", "EventProcessed"]
    assert endpoint.dynamodb.tables[PAYMENTS] == {}


@pytest.mark.parametrize("has_row", [True, False])
def test_an_event_that_only_a_webhook_knows_is_an_alarm(endpoint: Endpoint, has_row: bool) -> None:
    """Stripe has no such PaymentIntent, and no row names it: nothing is written, and nothing sent again."""
    if has_row:
        endpoint.at_the_bank()
    metadata = {"order_id": order_id("a"), "placed_at": str(T0)}
    money: dict[str, Any] = {"amount": AMOUNT_MINOR, "currency": "eur"}
    thing = {"id": "pi_unheard_of", "status": "succeeded", "metadata": metadata, **money}
    assert endpoint.send(event_of("payment_intent.succeeded", "payment_intent", **thing)) == 200
    assert endpoint.counted == ["EventUnknownToStripe", "Alarm", "EventProcessed"]
    assert len(endpoint.dynamodb.tables.get(PAYMENTS, {})) == has_row
    assert not has_row or endpoint.payment().state is PaymentState.REQUIRES_ACTION


def test_a_canceled_order_that_is_charged_is_refunded(endpoint: Endpoint) -> None:
    """It cannot happen by design. The event is sent again until the refund is made."""
    assert endpoint.cancel() is Cancellation.CANCELED
    event = endpoint.stripe.show("pi_0", "succeeded")
    endpoint.io.faults["stripe_refund"] = "drop after"
    assert endpoint.send(event) == 503
    assert endpoint.send(event) == 200
    assert [(each.charge.payment_intent, each.amount) for each in endpoint.stripe.refunds] == [("pi_0", AMOUNT_MINOR)]
    assert endpoint.payment().state is PaymentState.CANCELED


def test_another_payment_intent_that_succeeds_too_is_an_alarm(endpoint: Endpoint) -> None:
    """As after two restored tables: the row keeps the first."""
    endpoint.paid()
    assert endpoint.send(endpoint.stripe.show(endpoint.another_payment_intent(), "succeeded")) == 200
    assert endpoint.counted == ["Discrepancy.PAID_TWICE", "Alarm", "EventProcessed"]
    assert endpoint.payment().payment_intent_id == "pi_0"


def test_a_review_of_two_charges_is_left_only_by_a_person(endpoint: Endpoint) -> None:
    """One of them is refunded, and its event comes once more: what becomes of the other one's money is not decided."""
    endpoint.paid()
    endpoint.stripe.forget_keys()
    another = endpoint.another_payment_intent()
    endpoint.stripe.show(another, "succeeded")
    endpoint.dynamodb.tables[PAYMENTS].clear()
    endpoint.now += LOOKUP_AGE_SECONDS
    endpoint.deliver()
    endpoint.stripe.refund_by_hand(another, AMOUNT_MINOR)
    before = endpoint.payment()
    for each in (another, "pi_0"):
        assert endpoint.send(endpoint.stripe.show(each, "succeeded")) == 200
    assert (endpoint.payment(), before.state) == (before, PaymentState.NEEDS_REVIEW)


def test_the_requested_cancellation_of_a_failed_authentication_stays_unfinished(endpoint: Endpoint) -> None:
    """DECLINED would take the row out of the index, where the reconciler finds it to finish the cancellation."""
    endpoint.at_the_bank()
    assert endpoint.request_cancel(payment_method=ASKS_FOR_ACTION) is Cancellation.CANCELING
    before = endpoint.payment().state
    assert endpoint.send(endpoint.stripe.show("pi_0", "requires_payment_method")) == 200
    assert endpoint.payment().state is before
    endpoint.now += BOUNDS.lease_seconds
    assert endpoint.reconcile()
    assert endpoint.payment().state is PaymentState.CANCELED


def test_an_expanded_payment_intent_is_taken_by_its_id(endpoint: Endpoint) -> None:
    """A refund or a dispute may show the whole PaymentIntent in place of its id."""
    endpoint.paid()
    endpoint.stripe.refund_by_hand("pi_0", 1000)
    events = endpoint.stripe.disputed("pi_0", "lost"), endpoint.stripe.refund_fails("re_0")
    for event in events:
        event["data"]["object"]["payment_intent"] = {"id": "pi_0", "object": "payment_intent"}
        assert endpoint.send(event) == 200
    assert endpoint.payment().disputes == {"du_0": "lost"}
    assert "EventWithoutOrder" not in endpoint.counted


# ---------------------------------------------------------------- refunds


def make_refund(endpoint: Endpoint) -> None:
    """The row of our refund re_0, which succeeded."""
    request = FrozenRefund(order_id("a"), REFUND_ID, 1, 1000, "EUR", "pi_0", T0)
    store = endpoint.refund_store
    store.claim(request, correlation_id="c", owner="w", now=T0, lease_seconds=30)
    refund = store.read(order_id("a"), REFUND_ID)
    assert refund is not None
    assert store.finalize_if_unchanged(refund, FinalizeRefund(RefundState.SUCCEEDED, "re_0"), now=T0)


def test_a_refund_made_by_hand_shows_on_the_row(endpoint: Endpoint) -> None:
    """By the metadata that Stripe copies to the charge, and as Stripe shows it by now, whatever comes late."""
    endpoint.paid()
    first, second = endpoint.stripe.refund_by_hand("pi_0", 1000), endpoint.stripe.refund_by_hand("pi_0", 99)
    assert endpoint.send(second) == 200
    written = endpoint.payment()
    assert (written.state, written.amount_refunded_minor) == (PaymentState.SUCCEEDED, AMOUNT_MINOR)
    assert endpoint.send(first) == 200
    assert endpoint.payment() == written
    assert endpoint.counted == ["AfterChargeRecorded", "EventProcessed", "EventProcessed"]


@pytest.mark.parametrize("metadata", [{}, {"order_id": order_id("a"), "refund_id": REFUND_ID}], ids=["by hand", "ours"])
@pytest.mark.parametrize("disordered", [False, True])
def test_a_refund_that_fails_is_refunded_no_more(
    endpoint: Endpoint, metadata: dict[str, str], disordered: bool
) -> None:
    """The sum falls, whichever event comes first; one by hand names no order, its PaymentIntent does."""
    endpoint.paid()
    made, others = endpoint.stripe.refund_by_hand("pi_0", 1000, **metadata), endpoint.stripe.refund_by_hand("pi_0", 99)
    endpoint.send(others if disordered else made)
    assert endpoint.payment().amount_refunded_minor == AMOUNT_MINOR
    assert endpoint.send(endpoint.stripe.refund_fails("re_0")) == 200
    assert endpoint.payment().amount_refunded_minor == 99
    assert endpoint.send(made if disordered else others) == 200
    assert endpoint.payment().amount_refunded_minor == 99


@pytest.mark.parametrize("kind", ["refund.updated", "refund.failed"])
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_refund_of_ours_that_fails_is_failed(endpoint: Endpoint, kind: str, is_lost: bool) -> None:
    """Its row, or the row that is written again if it was lost. The alarm comes before the write, and only then."""
    endpoint.paid()
    endpoint.send(endpoint.stripe.webhooks[-1])
    endpoint.stripe.refund_by_hand("pi_0", 1000, order_id=order_id("a"), refund_id=REFUND_ID)
    if not is_lost:
        make_refund(endpoint)
    event = endpoint.stripe.refund_fails("re_0") | {"type": kind}
    fails_at_the_write(endpoint, event, "dynamodb PutItem" if is_lost else "dynamodb UpdateItem")
    assert "Alarm" in endpoint.counted
    endpoint.counted.clear()
    assert [endpoint.send(event), endpoint.send(event)] == [200, 200]
    refund = endpoint.refund_store.read(order_id("a"), REFUND_ID)
    assert refund is not None
    assert (refund.state, refund.failure_code) == (RefundState.FAILED, "lost_or_stolen_card")
    assert endpoint.counted.count("Alarm") == 1


def test_a_sum_that_fell_while_it_was_written_is_read_again(endpoint: Endpoint) -> None:
    """The event of the failure is applied in between, and finds nothing to write: the row shows no refund yet."""
    endpoint.paid()
    made = endpoint.stripe.refund_by_hand("pi_0", 1000)
    record, failed = endpoint.store.record_after_charge, list[Event]()

    def fails_meanwhile(*given: Any, now: int) -> bool:
        if not failed:
            failed.append(endpoint.stripe.refund_fails("re_0"))
            endpoint.send(failed[0])
        return record(*given, now=now)

    object.__setattr__(endpoint.store, "record_after_charge", fails_meanwhile)
    assert endpoint.send(made) == 200
    assert (len(failed), endpoint.payment().amount_refunded_minor) == (1, 0)


def test_a_refund_of_another_payment_intent_is_not_the_orders(endpoint: Endpoint) -> None:
    """The second charge of an order was refunded by hand: the first is still paid. A part is not enough."""
    endpoint.paid()
    another = endpoint.another_payment_intent()
    endpoint.stripe.show(another, "succeeded")
    for amount_minor, alarms in ((1, ["Discrepancy.PAID_TWICE", "Alarm"]), (AMOUNT_MINOR - 1, [])):
        endpoint.counted.clear()
        assert endpoint.send(endpoint.stripe.refund_by_hand(another, amount_minor)) == 200
        assert endpoint.payment().amount_refunded_minor == 0
        assert endpoint.counted == [*alarms, "EventProcessed"]


def test_a_failed_refund_counts_for_the_order_of_its_payment_intent(endpoint: Endpoint) -> None:
    """Whatever order its metadata name: a person has typed them. Without a PaymentIntent it counts for none."""
    endpoint.paid()
    endpoint.send(endpoint.stripe.refund_by_hand("pi_0", 1000, order_id=order_id("b")))
    assert endpoint.payment().amount_refunded_minor == 1000
    failed = endpoint.stripe.refund_fails("re_0")
    assert endpoint.send(failed) == 200
    assert endpoint.payment().amount_refunded_minor == 0
    endpoint.stripe.requests.clear()
    failed["data"]["object"]["payment_intent"] = None
    assert endpoint.send(failed) == 200
    assert endpoint.stripe.requests == []


def test_the_rows_own_payment_intent_is_the_orders_whatever_its_metadata_say(endpoint: Endpoint) -> None:
    """A person has removed them."""
    endpoint.paid()
    refunded = endpoint.stripe.refund_by_hand("pi_0", 1000)
    endpoint.stripe.intent("pi_0").metadata = {}
    assert endpoint.send(refunded) == 200
    assert endpoint.payment().amount_refunded_minor == 1000


# ---------------------------------------------------------------- disputes


def of_two_charges(endpoint: Endpoint, row: str) -> str:
    """An order that was charged twice; returns the PaymentIntent that its row does not name."""
    endpoint.paid()
    another = endpoint.another_payment_intent()
    paid = endpoint.stripe.show(another, "succeeded")
    match row:
        case "paid":
            pass
        case "paid, the other one refunded":
            endpoint.stripe.refund_by_hand(another, AMOUNT_MINOR)
        case "canceled":
            endpoint.restore(endpoint.row() | {"state": "CANCELED"})
            endpoint.send(paid)
        case _:
            endpoint.restore(endpoint.row() | {"state": "NEEDS_REVIEW", "decline_code": SEVERAL_SUCCEEDED})
    endpoint.counted.clear()
    return another


@pytest.mark.parametrize("what", ["dispute", "warning", "review"])
@pytest.mark.parametrize("row", ["paid", "paid, the other one refunded", "canceled", "in review"])
def test_doubts_about_the_other_charge_of_an_order_are_an_alarm(endpoint: Endpoint, row: str, what: str) -> None:
    """A customer who was charged twice disputes it: the bank's deadline passes, whatever the row is."""
    another = of_two_charges(endpoint, row)
    match what:
        case "dispute":
            event = endpoint.stripe.disputed(another, "needs_response")
        case "warning":
            event = endpoint.stripe.warned(another)
        case _:
            event = endpoint.stripe.reviewed(another)
    assert endpoint.send(event) == 200
    assert ("ChargeDisputed" if what == "dispute" else "FraudSuspected") in endpoint.counted
    assert endpoint.payment().after_charge == AfterCharge()


def test_a_dispute_of_a_canceled_orders_charge_does_not_wait_for_its_refund(endpoint: Endpoint) -> None:
    """It is written, with one alarm, while the refund waits for the balance."""
    paid = endpoint.paid_at_the_bank()
    endpoint.restore(endpoint.row() | {"state": "CANCELED"})
    endpoint.stripe.failing["create refund"] = answer(400, code="balance_insufficient")
    assert endpoint.send(paid) == 503
    disputed = endpoint.stripe.disputed("pi_0", "warning_needs_response")
    assert [endpoint.send(disputed) for _ in range(3)] == [200] * 3
    assert list(endpoint.payment().disputes.values()) == ["warning_needs_response"]
    assert endpoint.counted.count("ChargeDisputed") == 1


def test_a_charge_of_other_money_knows_its_disputes(endpoint: Endpoint) -> None:
    """A person decides about it, and sees them."""
    endpoint.crash_after("confirm")
    paid = endpoint.stripe.webhooks[-1]
    endpoint.stripe.intent("pi_0").amount += 1
    endpoint.stripe.disputed("pi_0", "needs_response")
    endpoint.passes()
    assert endpoint.send(paid) == 200
    assert endpoint.payment().state is PaymentState.NEEDS_REVIEW
    assert list(endpoint.payment().disputes.values()) == ["needs_response"]


STATUSES = ("warning_needs_response", "needs_response", "under_review", "lost", "appeal_needs_response", "won")


@pytest.mark.parametrize("order", [STATUSES, STATUSES[::-1], (STATUSES[-1], *STATUSES)], ids=["old", "new", "last"])
def test_an_event_of_a_dispute_shows_what_stripe_says_by_now(endpoint: Endpoint, order: tuple[str, ...]) -> None:
    """Whichever comes last, and each twice. The PaymentIntent names the order."""
    endpoint.paid()
    events = {status: endpoint.stripe.disputed("pi_0", status) for status in STATUSES}
    for status in order:
        assert [endpoint.send(events[status]) for _ in range(2)] == [200, 200]
        assert endpoint.row()["dispute_status"] == "won"
    assert "Alarm" not in endpoint.counted


@pytest.mark.parametrize("status", [*STATUSES, "warning_under_review", "appeal_under_review", "prevented"])
def test_a_dispute_is_an_alarm_whenever_it_needs_a_response(endpoint: Endpoint, status: str) -> None:
    """Once for each time; also if it was closed before, and is appealed."""
    endpoint.paid()
    endpoint.send(endpoint.stripe.disputed("pi_0", "lost"))
    event = endpoint.stripe.disputed("pi_0", status)
    endpoint.send(event)
    endpoint.send(event)
    assert endpoint.row()["dispute_status"] == status
    assert endpoint.counted.count("Alarm") == status.endswith("needs_response")
    assert endpoint.counted.count("ChargeDisputed") == status.endswith("needs_response")
    for line in (line for line in endpoint.log.lines if line["level"] == "ERROR"):
        assert (line["order_id"], line["payment_intent_id"]) == (order_id("a"), "pi_0")


def test_the_row_shows_the_dispute_that_is_most_urgent(endpoint: Endpoint) -> None:
    """A charge may be disputed twice: each that needs a response is an alarm, and a closed one hides none."""
    endpoint.paid()
    shown = []
    for number, status in ((0, "needs_response"), (1, "needs_response"), (0, "under_review"), (1, "won"), (0, "lost")):
        endpoint.send(endpoint.stripe.disputed("pi_0", status, number))
        shown.append((endpoint.row()["dispute_status"], endpoint.counted.count("Alarm")))
    needs = "needs_response"
    assert shown == [(needs, 1), (needs, 2), (needs, 2), ("under_review", 2), ("won", 2)]


def test_a_dispute_is_an_alarm_before_it_is_written(endpoint: Endpoint) -> None:
    """So none is lost; one of a charge without a row of its own is an alarm as well."""
    endpoint.paid()
    event = endpoint.stripe.disputed("pi_0", "needs_response")
    fails_at_the_write(endpoint, event)
    assert endpoint.counted[:2] == ["ChargeDisputed", "Alarm"]
    endpoint.dynamodb.tables[PAYMENTS].clear()
    endpoint.counted.clear()
    assert endpoint.send(event) == 200
    assert endpoint.counted.count("ChargeDisputed") == 1
    assert endpoint.payment().disputes == {"du_0": "needs_response"}


def test_somebody_elses_dispute_is_acknowledged(endpoint: Endpoint) -> None:
    """As of a charge without a PaymentIntent."""
    assert endpoint.send(dispute(None)) == 200
    assert endpoint.counted == ["EventWithoutOrder", "EventProcessed"]


def test_a_dispute_that_our_key_does_not_know_is_sent_again(endpoint: Endpoint) -> None:
    """The key may be another account's for a while: an alarm, and nothing is dropped."""
    endpoint.paid()
    event = endpoint.stripe.disputed("pi_0", "needs_response")
    endpoint.stripe.account = 1
    assert endpoint.send(event) == 503
    assert {"EventUnknownToStripe", "Alarm"} <= set(endpoint.counted)
    endpoint.stripe.account = 0
    assert endpoint.send(event) == 200
    assert endpoint.row()["dispute_status"] == "needs_response"


# ---------------------------------------------------------------- fraud


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize(("closed_reason", "then"), [("approved", None), ("refunded_as_fraud", "review")])
def test_a_review_is_a_suspicion_until_it_is_approved(
    endpoint: Endpoint, closed_reason: str, then: str | None, newest_first: bool
) -> None:
    """Whichever event comes last, and twice. A refund's own event may be later than its review's."""
    endpoint.paid()
    opened = endpoint.stripe.reviewed("pi_0")
    assert [endpoint.send(each) for each in (opened, opened)] == [200, 200]
    assert (endpoint.row()["fraud_suspicion"], endpoint.counted.count("FraudSuspected")) == ("review", 1)
    events = [opened, endpoint.stripe.reviewed("pi_0", closed_reason)]
    for event in events[::-1] if newest_first else events:
        assert [endpoint.send(each) for each in (event, event)] == [200, 200]
        assert endpoint.row().get("fraud_suspicion") == then
    assert endpoint.counted.count("Alarm") == 1


def test_no_event_waits_for_the_right_to_read_fraud(endpoint: Endpoint) -> None:
    """Without it, what the event says is stored, with alarms: an approval is seen once the key has the right."""
    endpoint.paid()
    endpoint.stripe.failing["warnings"] = answer(403)
    for event in (endpoint.stripe.reviewed("pi_0"), approved := endpoint.stripe.reviewed("pi_0", "approved")):
        assert endpoint.send(event) == 200
        assert (endpoint.row()["fraud_suspicion"], "FraudNotRead" in endpoint.counted) == ("review", True)
    warning = endpoint.stripe.warned("pi_0")
    for event in (warning, approved):
        assert endpoint.send(event) == 200
        assert endpoint.row()["fraud_suspicion"] == "early_fraud_warning"


def test_without_that_right_an_approved_review_stays_approved(endpoint: Endpoint) -> None:
    """An event about something else says nothing of it."""
    endpoint.paid()
    for event in (endpoint.stripe.reviewed("pi_0"), endpoint.stripe.reviewed("pi_0", "approved")):
        endpoint.send(event)
    endpoint.stripe.failing["warnings"] = answer(403)
    endpoint.counted.clear()
    assert endpoint.send(endpoint.stripe.refund_by_hand("pi_0", 1000)) == 200
    assert (endpoint.payment().fraud_suspicion, "FraudSuspected" in endpoint.counted) == (None, False)


def test_no_approval_ends_an_early_fraud_warning(endpoint: Endpoint) -> None:
    """The issuer does not withdraw it. It is an alarm before it is written, also beside a review; a dispute repeats
    none."""
    endpoint.paid()
    endpoint.send(endpoint.stripe.reviewed("pi_0"))
    endpoint.counted.clear()
    fails_at_the_write(endpoint, endpoint.stripe.warned("pi_0"))
    assert endpoint.counted[:2] == ["FraudSuspected", "Alarm"]
    for event in (endpoint.stripe.reviewed("pi_0", "approved"), endpoint.stripe.webhooks[-2]):
        assert endpoint.send(event) == 200
        assert endpoint.row()["fraud_suspicion"] == "early_fraud_warning"
    alarms = endpoint.counted.count("Alarm")
    assert endpoint.send(endpoint.stripe.disputed("pi_0", "under_review")) == 200
    assert endpoint.counted.count("Alarm") == alarms


def test_a_payment_at_the_bank_is_published_with_its_review(endpoint: Endpoint) -> None:
    """Stripe opens it with the charge: whoever ships by the first event must know."""
    paid = endpoint.paid_at_the_bank()
    endpoint.stripe.reviewed("pi_0")
    assert endpoint.send(paid) == 200
    assert (endpoint.payment().state, endpoint.payment().fraud_suspicion) == (PaymentState.SUCCEEDED, "review")
