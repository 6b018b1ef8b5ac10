"""reconcile: what nobody else finishes is finished by a scheduled run, and nothing that fails blocks the rest.

DynamoDB is moto's, with the sparse index of template.yaml; Stripe is in memory.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
import stripe
from botocore.exceptions import ClientError

from onecharge.contract.refunds import RefundState
from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rules import FrozenRequest
from onecharge.payments.reconcile_checkpoint import ROUND_OVERDUE_SECONDS
from onecharge.payments.rows import Claimed
from onecharge.payments.stripe_events import RECEIVED_STEP_SECONDS, NewestReceived, parse_event
from onecharge.payments.sync import UNATTENDED_SECONDS, cause_of, sync
from onecharge.payments.time_bounds import OVERDUE_SECONDS
from onecharge.runtime.alarms import Cause
from onecharge.runtime.dynamodb import ALL_SHARDS, SHARDS, shard_of
from onecharge.runtime.parallel import one_after_another
from reconcile import run as run_module
from reconcile.app import ReconcileParts
from reconcile.run import (
    FAILED_SECONDS,
    FINALIZING_SECONDS,
    IN_PARALLEL,
    REREAD_SECONDS,
    SILENT_EVENTS,
    STEP_SECONDS,
)
from tests.shop.builders import BOUNDS
from tests.shop.scripted_stripe import ASKS_FOR_ACTION, DECLINED, NO_ANSWER, VISA, WRONG_KEY, meanwhile
from tests.shop.shop import RUN_SECONDS, Shop, order_id, shop_on_moto
from tests.shop.tools import REQUIRES_ACTION_SECONDS, Cancellation
from tests.support.functions import handle
from tests.support.harness import LambdaContext, Log, load_template, number_of


@pytest.fixture
def shop(aws: None, log: Log) -> Shop:
    return shop_on_moto(log)


CANCELED_BY_HAND = {"status": "canceled", "cancellation_reason": "requested_by_customer"}


# ---------------------------------------------------------------- a row that nobody works on


DECIDED: dict[str, tuple[str, dict[str, Any], PaymentState]] = {
    "paid": (VISA, {}, PaymentState.SUCCEEDED),
    "declined": (DECLINED, {}, PaymentState.DECLINED),
    "waits for the customer": (ASKS_FOR_ACTION, {}, PaymentState.REQUIRES_ACTION),
    "canceled for the customer": ("", CANCELED_BY_HAND, PaymentState.CANCELED),
    "another amount": ("", {"amount": 1}, PaymentState.NEEDS_REVIEW),
}


@pytest.mark.parametrize(("card", "changes", "state"), DECIDED.values(), ids=DECIDED.keys())
def test_what_stripe_has_decided_is_finalized(
    shop: Shop, card: str, changes: dict[str, Any], state: PaymentState
) -> None:
    """By the same rules as the worker's. Its message is lost, and Stripe's events as well: the row's turn finds it."""
    if card:
        shop.crash_after("confirm", payment_method=card)
    else:
        shop.crash_before("confirm")
    shop.stripe.show("pi_0", **changes)
    shop.stripe.events.clear()
    counted = shop.run(after_seconds=UNATTENDED_SECONDS)
    assert (shop.state(), counted[f"Reconciled.{state}"]) == (state, 1)
    assert counted["Alarm"] == (state is PaymentState.NEEDS_REVIEW)
    assert counted["DeclinedShare"] == (state in (PaymentState.SUCCEEDED, PaymentState.DECLINED))
    if state in (PaymentState.DECLINED, PaymentState.REQUIRES_ACTION):
        shop.deliver(attempt=2)
        assert shop.state() is PaymentState.SUCCEEDED


@pytest.mark.parametrize("status", ["requires_payment_method", "canceled", "processing"])
def test_nothing_is_confirmed_and_nothing_created(shop: Shop, status: str) -> None:
    """What Stripe has not decided waits for a message's worker; after a day nobody comes, and it is an alarm."""
    shop.crash_before("confirm")
    shop.stripe.show("pi_0", status, cancellation_reason="automatic" if status == "canceled" else None)
    shop.stripe.requests.clear()
    assert shop.run(after_seconds=UNATTENDED_SECONDS)["AbandonedPayment"] == 0
    assert shop.run(after_seconds=OVERDUE_SECONDS)["AbandonedPayment"] == 1
    assert shop.state() is PaymentState.PENDING
    assert {*shop.stripe.operations} == {"retrieve", "events"}


def test_a_decline_of_the_attempt_before_decides_nothing(shop: Shop) -> None:
    """The PaymentIntent still shows it; the current attempt was never confirmed."""
    shop.deliver(payment_method=DECLINED)
    shop.crash_before("confirm", payment_method=VISA, attempt=2)
    shop.run(after_seconds=UNATTENDED_SECONDS)
    assert shop.state() is PaymentState.PENDING


def test_a_row_that_is_worked_on_is_left_alone(shop: Shop) -> None:
    """Its message claims it again within 15 minutes, each time the lease is free."""
    shop.crash_before("confirm")
    shop.stripe.requests.clear()
    shop.run(after_seconds=UNATTENDED_SECONDS - 1)
    assert shop.stripe.operations == ["events"]
    shop.stripe.failing["confirm"] = NO_ANSWER
    shop.deliver()
    shop.stripe.requests.clear()
    shop.run(after_seconds=UNATTENDED_SECONDS - 1)
    assert shop.stripe.operations == ["events"]


def test_a_row_that_is_claimed_since_the_index_was_read_is_left_alone(shop: Shop) -> None:
    """The index is eventually consistent: the row itself says that somebody works on it."""
    shop.crash_after("confirm", payment_method=DECLINED)
    shop.stripe.requests.clear()
    shop.now += BOUNDS.lease_seconds
    assert shop.reconcile()
    assert (shop.state(), shop.stripe.requests) == (PaymentState.PENDING, [])


def test_a_payment_intent_that_stripe_does_not_have_is_an_alarm(shop: Shop) -> None:
    """As with the key of another account: nothing is written."""
    shop.crash_before("confirm")
    shop.stripe.account = 1
    counted = shop.run(after_seconds=UNATTENDED_SECONDS)
    assert (counted["RowUnknownToStripe"], counted["Alarm"]) == (1, 1)
    assert shop.state() is PaymentState.PENDING


def test_what_a_dead_canceler_left_is_finished(shop: Shop) -> None:
    """Even of an order that was never sent: a PaymentIntent is created to leave the trace, and never confirmed."""
    assert shop.request_cancel() is Cancellation.CANCELING
    shop.run(after_seconds=UNATTENDED_SECONDS)
    assert shop.state() is PaymentState.CANCELED
    [intent] = shop.stripe.intents
    assert intent.cancellation_reason == "requested_by_customer"
    assert shop.stripe.sent("confirm") == []


# ---------------------------------------------------------------- REQUIRES_ACTION ends


def test_after_the_parameters_time_it_is_canceled_as_abandoned(shop: Shop) -> None:
    """Then the attempt is DECLINED with a code of its own, and another card is tried on the next generation."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    shop.run(after_seconds=REQUIRES_ACTION_SECONDS - 1)
    assert shop.state() is PaymentState.REQUIRES_ACTION
    shop.run(after_seconds=1)
    assert shop.stripe.intent("pi_0").cancellation_reason == "abandoned"
    assert shop.row()["decline_code"] == "requires_action_expired"
    assert shop.state() is PaymentState.DECLINED
    shop.deliver(payment_method=VISA, attempt=2)
    row = shop.payment()
    assert (row.state, row.generation, row.payment_intent_id) == (PaymentState.SUCCEEDED, 1, "pi_1")


def test_what_a_person_canceled_while_it_waits_needs_review(shop: Shop) -> None:
    """Not another card: the PaymentIntent was canceled as fraudulent."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    shop.stripe.show("pi_0", "canceled", cancellation_reason="fraudulent")
    counted = shop.run(after_seconds=FINALIZING_SECONDS + 1)
    assert (counted["Discrepancy.STOPPED"], counted["Alarm"]) == (1, 1)
    assert shop.state() is PaymentState.NEEDS_REVIEW


def test_one_that_stripe_canceled_while_it_waits_leaves_no_attempt(shop: Shop) -> None:
    """After a decline, as when the customer's page has tried too often."""
    shop.deliver(payment_method=DECLINED)
    shop.deliver(payment_method=ASKS_FOR_ACTION, attempt=2)
    shop.stripe.show("pi_0", "canceled", cancellation_reason="automatic")
    shop.run(after_seconds=FINALIZING_SECONDS + 1)
    assert (shop.state(), shop.row()["decline_code"]) == (PaymentState.DECLINED, "no_attempt_left")


def test_who_authenticates_at_the_last_moment_has_paid(shop: Shop) -> None:
    """Stripe decides the race."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    shop.stripe.next("cancel", meanwhile(lambda: shop.stripe.show("pi_0", "succeeded")))
    shop.run(after_seconds=REQUIRES_ACTION_SECONDS)
    assert shop.state() is PaymentState.SUCCEEDED


def test_a_run_that_crashes_after_the_cancel_is_gone_on_with(shop: Shop) -> None:
    """The next one finds it canceled as abandoned: the same code."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    shop.stripe.show("pi_0", "canceled", cancellation_reason="abandoned")
    shop.run(after_seconds=REQUIRES_ACTION_SECONDS)
    assert shop.row()["decline_code"] == "requires_action_expired"


def test_a_customer_who_still_has_time_is_no_abandoned_payment(shop: Shop) -> None:
    """With a parameter of three days."""
    shop.requires_action_seconds = 3 * 24 * 3600
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    assert shop.run(after_seconds=OVERDUE_SECONDS + 1)["AbandonedPayment"] == 0


# ---------------------------------------------------------------- rows


def names_of(count: int) -> list[str]:
    return [f"{number:x}" for number in range(count)]


def of_one_shard(count: int) -> list[str]:
    shard = shard_of(order_id("0"))
    return [name for name in names_of(100) if shard_of(order_id(name)) == shard][:count]


def test_one_row_that_fails_blocks_no_other(shop: Shop) -> None:
    """Neither one that Stripe does not answer for, nor one that cannot be read; both are tried again on every run."""
    names = names_of(12)
    for name in names:
        shop.crash_after("confirm", name)
    shop.stripe.events.clear()
    ill, malformed, *others = names
    shop.stripe.failing[str(shop.payment(ill).payment_intent_id)] = NO_ANSWER
    shop.restore(shop.row(malformed) | {"state": "?"})
    for _ in range(2):
        counted = shop.run(after_seconds=UNATTENDED_SECONDS)
        # What no outage explains needs a person.
        assert (counted["ReconcileFailed"], counted["Alarm"]) == (2, 1)
    assert {shop.state(name) for name in others} == {PaymentState.SUCCEEDED}
    failed = {line["order_id"] for line in shop.log.lines if "not reconciled" in line["message"]}
    assert failed == {order_id(ill), order_id(malformed)}
    shop.stripe.failing.clear()
    shop.run(after_seconds=300)
    assert shop.state(ill) is PaymentState.SUCCEEDED


def test_only_unfinished_rows_are_visited(shop: Shop) -> None:
    """By the index, not by a scan; a finished row costs nothing."""
    for name in names_of(12):
        shop.deliver(name)
    shop.crash_before("confirm", "f1")
    shop.stripe.events.clear()
    asked: list[str] = []
    shop.dynamodb.meta.events.register(
        "before-call.dynamodb", lambda model, **_: asked.append(model.name), unique_id="watch"
    )
    shop.run(after_seconds=UNATTENDED_SECONDS)
    counted = Counter(asked)
    assert "Scan" not in counted
    # DynamoDB may say only with one more page that a shard has no more rows.
    assert counted["Query"] in (SHARDS, SHARDS + 1)
    # The checkpoint's, that of the one row, and how new the newest event is that was received.
    assert counted["GetItem"] == 3


def test_each_shard_is_visited_from_the_oldest_row_on(shop: Shop) -> None:
    """Whoever has waited longest is first."""
    names = of_one_shard(4)
    for name in reversed(names):
        shop.crash_before("confirm", name)
        shop.now += 60
    shop.stripe.requests.clear()
    shop.run(after_seconds=UNATTENDED_SECONDS)
    assert shop.stripe.sent("retrieve") == [shop.payment(name).payment_intent_id for name in reversed(names)]


def test_a_run_is_bounded_and_the_next_one_goes_on(shop: Shop) -> None:
    """Rows that take long do not keep a round from its end, and no row is visited twice in it: a run may end within a
    shard, which has several pages."""
    shop.run()
    started_at = shop.now
    for name in names_of(60):
        shop.crash_before("confirm", name)
    shop.stripe.failing["retrieve"] = NO_ANSWER
    shop.now += UNATTENDED_SECONDS
    shop.stripe.requests.clear()
    shop.seconds_a_request = STEP_SECONDS
    rounds = 0
    while not rounds or not shop.checkpoint.is_between_rounds:
        shop.run(after_seconds=300)
        rounds += 1
        behind = 0 if shop.checkpoint.is_between_rounds else shop.now - started_at
        assert shop.gauges["RowsBehindSeconds"] == behind
    visited = Counter(shop.stripe.sent("retrieve"))
    assert (len(visited), set(visited.values())) == (60, {1})
    assert rounds > 2


@dataclass
class Recorded:
    """A Parallel that keeps what it was given together."""

    together: list[list[Any]] = field(default_factory=list)

    def __call__[Item, Result](self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        self.together.append(list(items))
        return one_after_another(call, self.together[-1])


def test_rows_of_a_shard_are_visited_in_parallel(shop: Shop) -> None:
    """A page of the index at a time; what a run leaves is the next run's, and nothing is skipped."""
    names = names_of(40)
    for name in names:
        shop.crash_after("confirm", name)
    shop.stripe.events.clear()
    shop.now += UNATTENDED_SECONDS
    shop.parallel, shop.seconds_a_request = Recorded(), STEP_SECONDS / 2
    runs = 0
    while not runs or not shop.checkpoint.is_between_rounds:
        shop.run(after_seconds=300)
        runs += 1
    by_shard = [[order_id(name) for name in names if shard_of(order_id(name)) == shard] for shard in ALL_SHARDS]
    pages = [sorted(page) for page in shop.parallel.together if page]
    assert sorted(each for page in pages for each in page) == sorted(order_id(name) for name in names)
    assert max(len(page) for page in pages) == min(IN_PARALLEL, max(len(each) for each in by_shard))
    assert all(any({*page} <= {*of_shard} for of_shard in by_shard) for page in pages)
    assert {shop.state(name) for name in names} == {PaymentState.SUCCEEDED}
    assert runs > 1


@pytest.mark.parametrize("orders", ["aaaaaaaa", "aabbaabb", "abcdef01"])
def test_a_run_that_is_cut_off_goes_on_behind_what_it_has_applied(shop: Shop, orders: str) -> None:
    """However few of a page's events a run has time for, those of one order in parallel included: none is skipped."""
    for name in sorted({*orders}):
        shop.deliver(name, payment_method=ASKS_FOR_ACTION)
    shop.run(after_seconds=FINALIZING_SECONDS + 1)
    for name in orders:
        shop.stripe.show(str(shop.payment(name).payment_intent_id), "succeeded")
    shop.parallel, shop.seconds_a_request = Recorded(), RUN_SECONDS
    shop.now += FINALIZING_SECONDS + 1
    runs = 0
    while shop.checkpoint.since < shop.now - FINALIZING_SECONDS:
        shop.seconds_a_request = RUN_SECONDS / 2 if runs else RUN_SECONDS
        shop.run()
        runs += 1
        assert runs <= len(orders)
    applied = [event.event_id for page in shop.parallel.together for event in page if not isinstance(event, str)]
    expected = [each["id"] for each in shop.stripe.events if each["type"] == "payment_intent.succeeded"]
    assert sorted(applied) == sorted(expected)
    assert {shop.state(name) for name in orders} == {PaymentState.SUCCEEDED}


def test_no_round_for_an_hour_is_an_alarm(shop: Shop) -> None:
    """What is stuck would be stuck unseen."""
    for name in {shard_of(order_id(name)): name for name in names_of(20)}.values():
        shop.crash_before("confirm", name)
    shop.run(after_seconds=UNATTENDED_SECONDS)
    shop.seconds_a_request = 90
    assert shop.run(after_seconds=ROUND_OVERDUE_SECONDS)["ReconcileOverdue"] == 0
    counted = shop.run(after_seconds=1)
    assert (counted["ReconcileOverdue"], counted["Alarm"]) == (1, 1)


def test_an_abandoned_payment_is_an_alarm_on_every_run(shop: Shop) -> None:
    """An order without a PaymentIntent, of which no message comes any more."""
    shop.crash_before("create")
    assert shop.run(after_seconds=OVERDUE_SECONDS - 1)["AbandonedPayment"] == 0
    for _ in range(2):
        counted = shop.run(after_seconds=300)
        assert (counted["AbandonedPayment"], counted["Alarm"]) == (1, 1)
    # A redriven message can still claim it.
    shop.deliver()
    assert shop.state() is PaymentState.SUCCEEDED


@pytest.mark.parametrize(
    ("status", "reason", "state", "alarms"),
    [
        ("canceled", "requested_by_customer", PaymentState.CANCELED, 0),
        ("succeeded", None, PaymentState.SUCCEEDED, 0),
        ("requires_capture", None, PaymentState.NEEDS_REVIEW, 1),
        ("requires_payment_method", None, PaymentState.PENDING, 1),
        ("canceled", "abandoned", PaymentState.PENDING, 1),
    ],
)
def test_a_row_that_names_no_payment_intent_is_looked_up(
    shop: Shop, status: str, reason: str | None, state: PaymentState, alarms: int
) -> None:
    """As a restored one, whose order has ended: it ends by what Stripe shows. Nothing is confirmed or created."""
    shop.crash_after("create")
    shop.stripe.show("pi_0", status, cancellation_reason=reason)
    shop.stripe.events.clear()
    shop.stripe.requests.clear()
    assert shop.run(after_seconds=OVERDUE_SECONDS)["Alarm"] == alarms
    assert shop.state() is state
    assert not {"create", "confirm"} & {*shop.stripe.operations}
    assert shop.run(after_seconds=300)["Alarm"] == (state is PaymentState.PENDING)


def test_an_incomplete_lookup_finishes_no_row(shop: Shop) -> None:
    """It decides nothing."""
    shop.crash_before("create")
    shop.stripe.failing["search"] = NO_ANSWER
    counted = shop.run(after_seconds=OVERDUE_SECONDS)
    assert (counted["ReconcileFailed"], counted["AbandonedPayment"]) == (1, 1)
    assert shop.state() is PaymentState.PENDING


def test_an_attempt_that_is_tried_again_for_a_day_is_an_alarm(shop: Shop) -> None:
    """Its last claim is young, the attempt is not: the worker says so, and the run once nobody claims it any more."""
    shop.deliver(payment_method=DECLINED)
    shop.now += 3 * OVERDUE_SECONDS
    shop.stripe.failing["confirm"] = NO_ANSWER
    for _ in range(2):
        shop.counted.clear()
        shop.deliver(attempt=2)
        assert "Alarm" not in shop.counted
        shop.now += OVERDUE_SECONDS // 2
    shop.counted.clear()
    shop.deliver(attempt=2)
    assert [each for each in shop.counted if "Payment" not in each] == ["Alarm"]
    assert "PaymentOverdue" in shop.counted
    assert shop.run(after_seconds=UNATTENDED_SECONDS)["AbandonedPayment"] == 1


def test_a_late_cancellation_is_not_as_old_as_its_attempt(shop: Shop) -> None:
    """It has a day of its own."""
    shop.deliver(payment_method=DECLINED)
    shop.now += 3 * OVERDUE_SECONDS
    shop.request_cancel(payment_method=DECLINED)
    shop.stripe.failing["cancel"] = NO_ANSWER
    assert shop.run(after_seconds=UNATTENDED_SECONDS)["AbandonedPayment"] == 0
    assert shop.run(after_seconds=OVERDUE_SECONDS)["AbandonedPayment"] == 1


# ---------------------------------------------------------------- events


def test_what_has_just_happened_is_left_to_whoever_does_it(shop: Shop) -> None:
    """Events are read when they are old enough for it to be finalized; and then they are read."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    shop.run()
    shop.stripe.show("pi_0", "succeeded")
    shop.run(after_seconds=FINALIZING_SECONDS)
    assert shop.state() is PaymentState.REQUIRES_ACTION
    shop.run(after_seconds=1)
    assert shop.state() is PaymentState.SUCCEEDED
    assert shop.gauges["EventsBehindSeconds"] == FINALIZING_SECONDS


@pytest.mark.parametrize("ahead", [600, 3600 - FINALIZING_SECONDS])
def test_a_reconciler_whose_clock_is_ahead_of_stripes_misses_no_event(shop: Shop, ahead: int) -> None:
    """Whatever the page pays after a decline, though each run's own time lies in Stripe's future."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    shop.stripe.show("pi_0", "requires_payment_method")
    shop.ahead = ahead
    shop.run(after_seconds=300)
    assert shop.state() is PaymentState.DECLINED
    shop.run(after_seconds=300)
    shop.stripe.show("pi_0", "succeeded")  # The customer's page tried another card.
    assert shop.run(after_seconds=300)["Discrepancy.PAID_LATE"] == 1
    assert shop.state() is PaymentState.SUCCEEDED


def test_an_event_that_stripe_lists_late_is_applied(shop: Shop) -> None:
    """It was created before what has been read already."""
    shop.deliver(payment_method=DECLINED)
    shop.stripe.show("pi_0", "succeeded")
    late = shop.stripe.events.pop()
    shop.run(after_seconds=REREAD_SECONDS - 600)
    assert shop.state() is PaymentState.DECLINED
    shop.stripe.events.append(late)
    shop.run(after_seconds=300)
    assert shop.state() is PaymentState.SUCCEEDED


def test_what_no_row_records_is_an_alarm_once(shop: Shop) -> None:
    """A second charge of an order: its event is read again for an hour."""
    shop.deliver()
    shop.stripe.forget_keys()
    shop.made_before("succeeded")
    counted = Counter[str]()
    for _ in range(15):
        counted += shop.run(after_seconds=300)
    assert (counted["Discrepancy.PAID_TWICE"], counted["ReconcileFailed"]) == (1, 0)


def test_an_event_that_fails_is_kept_once(shop: Shop) -> None:
    """Though each run reads it again."""
    shop.pay_at_the_bank("a")
    shop.stripe.failing["retrieve"] = NO_ANSWER
    shop.run(after_seconds=FINALIZING_SECONDS + 1)
    failed = shop.checkpoint.failed
    assert [each.failed_at for each in failed] == [shop.now]
    for _ in range(2):
        assert shop.run(after_seconds=300)["ReconcileFailed"] == 1
        assert shop.checkpoint.failed == failed


def test_a_lost_row_is_recovered_without_a_webhook(shop: Shop) -> None:
    """From Stripe's list of events."""
    shop.deliver()
    shop.lose_row()
    counted = shop.run(after_seconds=FINALIZING_SECONDS + 1)
    assert (counted["Discrepancy.LOST_ROW"], counted["Alarm"]) == (1, 1)
    assert shop.state() is PaymentState.SUCCEEDED


@pytest.mark.parametrize("finds", ["the run", "an event that comes again"])
def test_a_row_that_stands_for_a_lost_one_knows_its_refunds_and_disputes(shop: Shop, finds: str) -> None:
    """A worker had claimed the order again and stored the PaymentIntent's id, and died: the events were told before."""
    shop.deliver()
    paid = shop.stripe.webhooks[-1]
    shop.stripe.refund_by_hand("pi_0", 1000)
    shop.stripe.disputed("pi_0", "needs_response")
    shop.run(after_seconds=FINALIZING_SECONDS + 1)
    shop.counted.clear()
    shop.lose_row()
    claim = shop.store.claim(
        FrozenRequest.of(shop.order()),
        attempt=1,
        payment_method=VISA,
        correlation_id="c",
        owner="owner",
        now=shop.now,
        lease_seconds=BOUNDS.lease_seconds,
    )
    assert isinstance(claim, Claimed)
    shop.store.write_payment_intent(claim.row, "pi_0", 0)
    if finds == "the run":
        shop.run(after_seconds=UNATTENDED_SECONDS)
    else:
        shop.now += BOUNDS.lease_seconds
        event = parse_event(stripe.Event.construct_from(paid, None))
        assert event is not None
        sync(event, shop.tools())
    row = shop.payment()
    assert (row.state, row.amount_refunded_minor) == (PaymentState.SUCCEEDED, 1000)
    assert list(row.disputes.values()) == ["needs_response"]
    assert shop.counted.count("ChargeDisputed") == 1


def test_one_event_that_fails_blocks_no_other(shop: Shop) -> None:
    """It is kept in the checkpoint, and handled by a later run."""
    shop.pay_at_the_bank("abc")
    shop.stripe.failing["pi_1"] = NO_ANSWER
    counted = shop.run(after_seconds=FINALIZING_SECONDS + 1)
    assert (counted["ReconcileFailed"], counted["Alarm"]) == (1, 0)
    assert [shop.state(name) for name in "abc"] == ["SUCCEEDED", "REQUIRES_ACTION", "SUCCEEDED"]
    assert shop.run(after_seconds=300)["ReconcileFailed"] == 1
    [failed], event = shop.checkpoint.failed, shop.stripe.webhooks[3]
    assert (failed.event_id, event["data"]["object"]["id"]) == (event["id"], "pi_1")
    shop.stripe.failing.clear()
    shop.run(after_seconds=300)
    assert (shop.state("b"), shop.checkpoint.failed) == (PaymentState.SUCCEEDED, ())


def test_lost_webhooks_of_refunds_disputes_and_reviews_are_caught_up(shop: Shop) -> None:
    """From the same list as those of PaymentIntents, by the same rules."""
    shop.deliver()
    refund_id = f"rfd_{'1' * 32}"
    shop.stripe.refund_by_hand("pi_0", 700)
    shop.stripe.refund_by_hand("pi_0", 300, order_id=order_id("a"), refund_id=refund_id)
    shop.stripe.refund_fails("re_1")
    shop.stripe.disputed("pi_0", "needs_response")
    shop.stripe.reviewed("pi_0")
    counted = shop.run(after_seconds=FINALIZING_SECONDS + 1)
    refund = shop.refund_store.read(order_id("a"), refund_id)
    assert refund is not None
    assert (refund.state, counted["RefundDiscrepancy.LOST_ROW"]) == (RefundState.FAILED, 1)
    assert shop.payment().amount_refunded_minor == 700
    assert (shop.row()["dispute_status"], shop.row()["fraud_suspicion"]) == ("needs_response", "review")
    assert (counted["ChargeDisputed"], counted["FraudSuspected"]) == (1, 1)


def received(shop: Shop, event: dict[str, Any]) -> None:
    """Stripe's webhook has delivered the event."""
    parsed = parse_event(stripe.Event.construct_from(event, None))
    assert parsed is not None
    NewestReceived(shop.received).saw(parsed)
    sync(parsed, shop.tools())


def test_what_the_webhook_has_applied_costs_no_request_and_no_alarm(shop: Shop) -> None:
    """Only a dispute does: the event does not name its order, nor say which other disputes there are."""
    shop.deliver()
    shop.deliver("b", payment_method=ASKS_FOR_ACTION)
    received(shop, shop.stripe.show("pi_1", "succeeded"))
    received(shop, shop.stripe.refund_by_hand("pi_0", 700))
    received(shop, shop.stripe.disputed("pi_0", "needs_response"))
    shop.stripe.requests.clear()
    assert shop.run(after_seconds=FINALIZING_SECONDS + 1)["Alarm"] == 0
    what_followed = [("retrieve", "pi_0"), ("refunds", ""), ("disputes", ""), ("warnings", "")]
    assert shop.stripe.requests == [("events", ""), ("retrieve", "pi_0"), *what_followed]


def test_a_silent_webhook_is_an_alarm(shop: Shop) -> None:
    """Three events at Stripe are newer than all that were received; of what is older than the stack none is expected.
    A newer one that is received ends the silence."""

    def silent_after(*events: dict[str, Any]) -> int:
        for event in events:
            received(shop, event)
        return shop.run(after_seconds=FINALIZING_SECONDS + 1)["WebhookSilent"]

    def happens() -> dict[str, Any]:
        return shop.stripe.show("pi_0", "succeeded")

    shop.deliver()
    for _ in range(SILENT_EVENTS):
        happens()
    assert [silent_after(), silent_after()] == [0, 0]
    for number in range(1, SILENT_EVENTS + 1):
        shop.now += RECEIVED_STEP_SECONDS + 1
        happens()
        assert silent_after() == (number == SILENT_EVENTS)
        # Read again, as after a restore, an event is none more.
        shop.checkpoints.write(shop.checkpoint.reading_since(shop.now - 1000))
    assert (silent_after(), silent_after(happens())) == (1, 0)
    assert [silent_after() for _ in range(2)] == [0, 0]


def test_while_webhooks_arrive_events_are_listed_every_half_hour(shop: Shop) -> None:
    """Stripe counts reads. Once none has arrived for so long, each run lists them; failed events are retried by all."""
    shop.deliver()
    shop.run()

    def listed(*, webhooks: bool) -> int:
        shop.stripe.requests.clear()
        for _ in range(12):
            shop.now += 300
            if webhooks:
                received(shop, shop.stripe.show("pi_0", "succeeded"))
            shop.run()
        return shop.stripe.operations.count("events")

    assert [listed(webhooks=True), listed(webhooks=False)] == [2, 7]
    assert listed(webhooks=False) == 12


def test_a_failed_event_that_is_applied_between_two_lists_is_not_kept(shop: Shop) -> None:
    """While webhooks arrive, a run that lists no events stores what its retries came to."""
    shop.pay_at_the_bank("a")
    shop.stripe.failing["pi_0"] = NO_ANSWER
    shop.run(after_seconds=FINALIZING_SECONDS + 1)
    assert shop.checkpoint.failed
    shop.stripe.failing.clear()
    shop.deliver("b")
    received(shop, shop.stripe.show("pi_1", "succeeded"))
    shop.stripe.requests.clear()
    shop.run(after_seconds=300)
    assert ("events" in shop.stripe.operations, shop.checkpoint.failed) == (False, ())


def test_events_of_the_minute_of_the_newest_one_are_no_silence(shop: Shop) -> None:
    """Their own times are not stored."""
    shop.deliver()
    shop.run()
    shop.now += RECEIVED_STEP_SECONDS
    received(shop, shop.stripe.show("pi_0", "succeeded"))
    shop.now += RECEIVED_STEP_SECONDS - 1
    for _ in range(SILENT_EVENTS):
        shop.stripe.show("pi_0", "succeeded")
    assert shop.run(after_seconds=FINALIZING_SECONDS + 1)["WebhookSilent"] == 0


def test_what_the_webhook_left_to_a_worker_is_compared_again(shop: Shop) -> None:
    """The worker may have crashed, and its message be lost."""
    shop.crash_after("confirm")
    received(shop, shop.stripe.webhooks[-1])
    shop.run(after_seconds=FINALIZING_SECONDS + 1)
    assert shop.state() is PaymentState.SUCCEEDED


def test_after_a_restore_events_that_were_applied_before_are_applied_again(shop: Shop) -> None:
    """The rows may be older than the restore: no refund and no dispute of theirs stays unknown."""
    shop.deliver()
    since, row = shop.now, shop.row()
    shop.stripe.refund_by_hand("pi_0", 700)
    shop.stripe.disputed("pi_0", "needs_response")
    shop.run(after_seconds=FINALIZING_SECONDS + 1)
    applied = shop.row()
    shop.restore(row)
    shop.checkpoints.write(shop.checkpoint.reading_since(since))
    shop.run(after_seconds=300)
    # But with a higher revision: what the order has seen of the lost row is older.
    assert shop.row() == applied | {"revision": shop.row()["revision"]}
    assert shop.row()["revision"] > applied["revision"]


def test_a_failed_event_of_a_dispute_is_retrieved_and_handled_once(shop: Shop) -> None:
    """Only its id is kept; the alarm is raised when it is handled, and not before."""
    shop.deliver()
    event = shop.stripe.disputed("pi_0", "needs_response")
    shop.stripe.failing["retrieve"] = NO_ANSWER
    assert shop.run(after_seconds=FINALIZING_SECONDS + 1)["ChargeDisputed"] == 0
    assert [each.event_id for each in shop.checkpoint.failed] == [event["id"]]
    shop.stripe.failing.clear()
    assert shop.run(after_seconds=300)["ChargeDisputed"] == 1
    assert (shop.checkpoint.failed, shop.run(after_seconds=300)["ChargeDisputed"]) == ((), 0)


def test_a_failed_event_that_cannot_be_retrieved_is_kept(shop: Shop) -> None:
    """A key of another account, to which it is unknown, is an alarm."""
    shop.pay_at_the_bank("a")
    shop.stripe.failing["retrieve"] = NO_ANSWER
    shop.run(after_seconds=FINALIZING_SECONDS + 1)
    shop.stripe.failing["event"] = WRONG_KEY
    assert shop.run(after_seconds=300)["Alarm"] == 1
    assert shop.checkpoint.failed
    shop.stripe.failing.clear()
    shop.run(after_seconds=300)
    assert (shop.state(), shop.checkpoint.failed) == (PaymentState.SUCCEEDED, ())


def test_an_event_that_fails_for_a_day_is_abandoned_with_an_alarm(shop: Shop) -> None:
    """With its order and PaymentIntent in the log."""
    shop.pay_at_the_bank("a")
    shop.stripe.failing["pi_0"] = WRONG_KEY
    shop.run(after_seconds=FINALIZING_SECONDS + 1)
    shop.run(after_seconds=FINALIZING_SECONDS + REREAD_SECONDS)
    [failed] = shop.checkpoint.failed
    shop.now = failed.failed_at + FAILED_SECONDS - 1
    assert shop.run()["EventAbandoned"] == 0
    assert shop.run(after_seconds=1)["EventAbandoned"] == 1
    assert shop.checkpoint.failed == ()
    [line] = [line for line in shop.log.lines if "event abandoned" in line["message"]]
    assert (line["order_id"], line["payment_intent_id"]) == (order_id("a"), "pi_0")


def test_an_outage_of_days_abandons_no_event(shop: Shop) -> None:
    """It is applied once Stripe answers again."""
    shop.pay_at_the_bank("a")
    shop.stripe.failing["pi_0"] = NO_ANSWER
    for _ in range(3):
        assert shop.run(after_seconds=FAILED_SECONDS)["EventAbandoned"] == 0
    shop.stripe.failing.clear()
    shop.run(after_seconds=300)
    assert (shop.state(), shop.checkpoint.failed) == (PaymentState.SUCCEEDED, ())


def test_if_too_many_events_fail_reading_waits(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint stays small, no event is passed over, and rows go on; then all are handled."""
    monkeypatch.setattr(run_module, "FAILED_MAX", 2)
    shop.pay_at_the_bank("abcdef")
    shop.stripe.failing["retrieve"] = NO_ANSWER
    shop.run(after_seconds=FINALIZING_SECONDS + 1)
    assert len(shop.checkpoint.failed) == IN_PARALLEL
    shop.crash_after("confirm", "9")
    shop.stripe.failing.clear()
    shop.stripe.failing |= {"pi_2": NO_ANSWER, "pi_3": NO_ANSWER}
    shop.run(after_seconds=UNATTENDED_SECONDS)
    assert shop.state("9") is PaymentState.SUCCEEDED
    shop.stripe.failing.clear()
    shop.run(after_seconds=300)
    assert {shop.state(name) for name in "abcdef"} == {PaymentState.SUCCEEDED}


@pytest.mark.parametrize(
    ("code", "cause"), [("ThrottlingException", None), ("AccessDeniedException", Cause.UNEXPECTED_ERROR)]
)
def test_a_missing_right_is_an_alarm_and_an_outage_is_none(code: str, cause: Cause | None) -> None:
    """A row that cannot be read is not known to be overdue, and no other alarm sees that no row is finished."""
    assert cause_of(ClientError({"Error": {"Code": code}}, "GetItem")) is cause


@pytest.mark.parametrize(("failure", "alarms"), [(NO_ANSWER, 0), (WRONG_KEY, 1)])
def test_an_outage_loses_nothing(shop: Shop, failure: Any, alarms: int) -> None:
    """The next run reads the same events; a key that Stripe refuses is an alarm."""
    shop.pay_at_the_bank("a")
    shop.stripe.failing["events"] = failure
    counted = shop.run(after_seconds=FINALIZING_SECONDS + 1)
    assert (counted["ReconcileInterrupted"], counted["Alarm"] - counted["ReconcileOverdue"]) == (1, alarms)
    shop.stripe.failing.clear()
    shop.run(after_seconds=300)
    assert shop.state() is PaymentState.SUCCEEDED


def test_events_that_cannot_be_listed_for_an_hour_are_an_alarm(shop: Shop) -> None:
    """The first run is at most that far behind."""
    shop.run()
    shop.stripe.failing["events"] = NO_ANSWER
    assert shop.run(after_seconds=ROUND_OVERDUE_SECONDS - FINALIZING_SECONDS)["ReconcileOverdue"] == 0
    assert shop.run(after_seconds=1)["ReconcileOverdue"] == 1


def test_many_events_are_read_page_by_page(shop: Shop) -> None:
    """And gone on with by the next run if time is short."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    for _ in range(205):
        shop.stripe.show("pi_0", "requires_payment_method")
    shop.stripe.show("pi_0", "succeeded")
    shop.now += FINALIZING_SECONDS + 1
    shop.stripe.requests.clear()
    shop.seconds_a_request = 90
    while shop.run(after_seconds=1) and shop.checkpoint.since != shop.checkpoint.until:
        pass
    shop.run()
    assert shop.state() is PaymentState.SUCCEEDED
    assert len(shop.stripe.sent("events")) >= 3


def test_a_reconciler_that_was_off_for_months_starts_where_stripe_still_has_events(shop: Shop) -> None:
    """What it missed, the rows' own turn finds."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    shop.run()
    shop.stripe.show("pi_0", "succeeded")
    shop.stripe.events.clear()
    shop.run(after_seconds=90 * 24 * 3600)
    assert shop.state() is PaymentState.SUCCEEDED
    assert shop.checkpoint.since == shop.now - FINALIZING_SECONDS


# ---------------------------------------------------------------- runs


def test_two_runs_at_once_do_no_harm(shop: Shop) -> None:
    """One of them notices that the other has written the checkpoint, and stops."""
    shop.pay_at_the_bank("a")
    shop.stripe.next("events", meanwhile(shop.run))
    shop.run(after_seconds=FINALIZING_SECONDS + 1)
    assert shop.state() is PaymentState.SUCCEEDED
    assert Counter(shop.counted)["ConcurrentRun"] == 1


def test_a_stripe_key_that_cannot_be_read_is_an_alarm(
    aws: None, lambda_context: LambdaContext, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of its own cause, whichever function reads it. The next run tries again."""
    variables = load_template()["Resources"]["ReconcileFunction"]["Properties"]["Environment"]["Variables"]
    parts = ReconcileParts({name: number_of(name) or name for name in variables})
    handle(parts, {}, lambda_context)
    written = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    alarm, interrupted = (each for each in written if "_aws" in each)
    assert (alarm["Alarm"], alarm["cause"]) == ([1], Cause.STRIPE_KEY_UNREADABLE)
    assert interrupted["ReconcileInterrupted"] == [1]
