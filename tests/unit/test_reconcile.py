"""reconcile: a scheduled run finds what no webhook and no message has told; what fails does not block the rest."""

from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import stripe

from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rules import CREATE_SECONDS
from onecharge.payments.stripe_events import RECEIVED_STEP_SECONDS, NewestReceived, parse_event
from onecharge.runtime.alarms import Cause
from onecharge.runtime.parallel import one_after_another
from reconcile.run import (
    EVENTS_KEPT_SECONDS,
    FINALIZING_SECONDS,
    HELD_ALARM_SECONDS,
    IN_PARALLEL,
    LISTED_AFTER_SECONDS,
    ROWS_SECONDS,
    SILENT_EVENTS,
    UNATTENDED_SECONDS,
    WINDOW_SECONDS,
)
from tests.shop.builders import T0
from tests.shop.scripted_stripe import ASKS_FOR_ACTION, NO_ANSWER, WRONG_KEY, afterwards, meanwhile
from tests.shop.shop import RUN_SECONDS, Shop, order_id
from tests.shop.tools import REQUIRES_ACTION_SECONDS

DUE_SECONDS = LISTED_AFTER_SECONDS + FINALIZING_SECONDS
"""So long after an event, a run has listed it, whether or not webhooks arrive."""


@pytest.fixture
def shop() -> Shop:
    """It has run once before anything happens."""
    shop = Shop()
    shop.run()
    return shop


def alarms_of(shop: Shop, *, after_seconds: int = DUE_SECONDS) -> list[str]:
    """Run the reconciler so much later; returns the causes of its alarms."""
    shop.run(after_seconds=after_seconds)
    return shop.alarms


# ---------------------------------------------------------------- events


def test_an_event_that_no_webhook_has_told_is_applied(shop: Shop) -> None:
    """Once it is old enough that its worker has finished; the checkpoint says until when all are applied."""
    shop.now += LISTED_AFTER_SECONDS
    shop.pay_at_the_bank("a")
    shop.run(after_seconds=FINALIZING_SECONDS)
    assert shop.state() is PaymentState.REQUIRES_ACTION
    shop.run(after_seconds=1)
    assert shop.state() is PaymentState.SUCCEEDED
    assert shop.checkpoint.since == shop.now - FINALIZING_SECONDS
    assert shop.gauges["EventsBehindSeconds"] == FINALIZING_SECONDS


def test_the_first_run_begins_now() -> None:
    """What happened in the account before is none of this stack's, and no silence of its webhook."""
    shop = Shop()
    for name in "abc":
        shop.pay_at_the_bank(name)
        shop.now += RECEIVED_STEP_SECONDS + 1
    shop.stripe.requests.clear()
    assert alarms_of(shop, after_seconds=0) == []
    assert (shop.stripe.requests, shop.checkpoint.since) == ([], shop.now - FINALIZING_SECONDS)
    assert alarms_of(shop) == []


def test_the_checkpoint_advances_only_once_everything_is_applied(shop: Shop) -> None:
    """An event that fails does not block the others, and every run reads it again. The alarm JobsNotRun watches for how
    long. One that raised its alarm is applied: nobody but a person can do more."""
    shop.pay_at_the_bank("abc")
    shop.stripe.show(shop.made_before("requires_payment_method"), "succeeded")
    before = shop.checkpoint
    shop.stripe.failing["pi_1"] = NO_ANSWER
    for after_seconds in (DUE_SECONDS, 6 * 3600):
        assert shop.run(after_seconds=after_seconds)["ReconcileFailed"] == 1
        assert [shop.state(name) for name in "abc"] == ["SUCCEEDED", "REQUIRES_ACTION", "SUCCEEDED"]
        assert shop.checkpoint == before
        assert shop.alarms == [Cause.MONEY_DIFFERS]
        assert shop.gauges["EventsBehindSeconds"] == shop.now - before.since
    [line, _] = [line for line in shop.log.lines if "event not applied" in line["message"]]
    assert (line["order_id"], line["payment_intent_id"]) == (order_id("b"), "pi_1")
    shop.stripe.failing.clear()
    for _ in range(3):
        shop.run(after_seconds=300)
    assert (shop.state("b"), shop.checkpoint.since) == ("SUCCEEDED", shop.now - FINALIZING_SECONDS)


@pytest.mark.parametrize("days", [1, 90])
def test_after_an_outage_events_are_read_in_windows(shop: Shop, days: int) -> None:
    """So each run advances, however short its time is. Stripe keeps events for 30 days."""
    shop.seconds_a_request = RUN_SECONDS
    begin = max(
        shop.checkpoint.since, shop.checkpoint.since + days * 24 * 3600 + FINALIZING_SECONDS - EVENTS_KEPT_SECONDS
    )
    shop.now += days * 24 * 3600
    for number in (1, 2, 3):
        shop.run()
        assert shop.checkpoint.since == begin + WINDOW_SECONDS * number


@pytest.mark.parametrize(("failure", "expected"), [(NO_ANSWER, []), (WRONG_KEY, [Cause.STRIPE_ACCOUNT])])
def test_an_outage_loses_nothing(shop: Shop, failure: Any, expected: list[str]) -> None:
    """The next run reads the same events. A key that Stripe refuses is an alarm; so is a run that never reports."""
    shop.pay_at_the_bank("a")
    shop.gauges.clear()
    shop.stripe.failing["events"] = failure
    assert alarms_of(shop) == expected
    assert (shop.counted.count("ReconcileFailed"), shop.gauges) == (1, {})
    shop.stripe.failing.clear()
    shop.run(after_seconds=300)
    assert shop.state() is PaymentState.SUCCEEDED


# ---------------------------------------------------------------- webhooks


def received(shop: Shop, event: dict[str, Any]) -> None:
    """The webhook has had the event, and applied it."""
    parsed = parse_event(stripe.Event.construct_from(event, None))
    assert parsed is not None
    NewestReceived(shop.received).saw(parsed)
    shop.apply(parsed)


def test_while_webhooks_arrive_events_are_listed_every_half_hour(shop: Shop) -> None:
    """Stripe counts reads. Once none has arrived for so long, each run lists them."""
    shop.deliver()

    def listed(*, webhooks: bool) -> int:
        shop.stripe.requests.clear()
        for _ in range(12):
            shop.now += 300
            if webhooks:
                received(shop, shop.stripe.show("pi_0", "succeeded"))
            shop.run()
        return shop.stripe.operations.count("events")

    assert [listed(webhooks=webhooks) for webhooks in (True, False, False)] == [2, 7, 12]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_what_was_written_from_an_older_answer_is_corrected(shop: Shop, *, is_made_again: bool) -> None:
    """A sync has asked Stripe. Before it writes, the total is again what the row has, and the event that says so finds
    no difference: what the sync writes is older. The next run that lists events reads that event again."""
    shop.deliver()
    received(shop, shop.stripe.refund_by_hand("pi_0", 700))
    changed = shop.stripe.refund_by_hand("pi_0", 399)
    if is_made_again:
        received(shop, changed)
        shop.stripe.return_refund(shop.stripe.refunds[-1])
        changed = shop.stripe.webhooks[-1]

    def is_as_before() -> None:
        if is_made_again:
            shop.stripe.refund_by_hand("pi_0", 399)
        else:
            shop.stripe.return_refund(shop.stripe.refunds[-1])
        received(shop, shop.stripe.webhooks[-1])

    shop.stripe.next("retrieve", *[meanwhile(lambda: None)] * is_made_again, afterwards(is_as_before))
    received(shop, changed)
    assert shop.payment().amount_refunded_minor != sum(shop.refunded)
    shop.run(after_seconds=DUE_SECONDS)
    assert shop.payment().amount_refunded_minor == sum(shop.refunded)


def test_a_silent_webhook_is_an_alarm(shop: Shop) -> None:
    """Stripe has three events that are newer than the minute of those that were received; the next one ends it."""
    shop.deliver()
    shop.now += RECEIVED_STEP_SECONDS
    received(shop, shop.stripe.show("pi_0", "succeeded"))
    shop.now += RECEIVED_STEP_SECONDS
    shop.stripe.show("pi_0", "succeeded")
    for number in range(1, SILENT_EVENTS + 1):
        shop.now += RECEIVED_STEP_SECONDS + 1
        event = shop.stripe.show("pi_0", "succeeded")
        silent = alarms_of(shop)
        assert silent == [Cause.STRIPE_ACCOUNT] * (number == SILENT_EVENTS)
    received(shop, event)
    assert alarms_of(shop) == []


# ---------------------------------------------------------------- rows


def test_3d_secure_that_has_expired_cancels_the_order(shop: Shop) -> None:
    """Without an event of Stripe's, and not before: until then the row costs no request."""
    shop.deliver(payment_method=ASKS_FOR_ACTION)
    shop.stripe.requests.clear()
    shop.run(after_seconds=REQUIRES_ACTION_SECONDS - 1)
    assert {*shop.stripe.operations} == {"events"}
    shop.run(after_seconds=1)
    assert (shop.state(), shop.row()["reason"]) == (PaymentState.CANCELED, "expired")
    assert shop.stripe.intent("pi_0").status == "canceled"


def test_an_order_that_is_held_raises_one_alarm_a_day(shop: Shop) -> None:
    """From the end of its window on, also if it is to be canceled; until an operator releases it."""
    shop.crash_before("create")
    shop.crash_before("create", "b")
    shop.passes()
    shop.request_cancel(order_id=order_id("b"))
    shop.now = T0 + CREATE_SECONDS - 2
    for after_seconds, expected in ((1, 0), (1, 2), (HELD_ALARM_SECONDS - 1, 0), (1, 2)):
        assert alarms_of(shop, after_seconds=after_seconds) == [Cause.HELD] * expected
    held = {line["order_id"] for line in shop.log.lines if line.get("cause") == Cause.HELD}
    assert held == {order_id("a"), order_id("b")}
    shop.restore(shop.row() | {"released_at": shop.now})
    assert alarms_of(shop, after_seconds=HELD_ALARM_SECONDS - DUE_SECONDS * 5) == []


def test_a_held_row_that_changes_meanwhile_raises_its_alarm_once_more(shop: Shop) -> None:
    """It has not failed: the next run finds it as it is then."""
    shop.crash_before("create")
    shop.now = T0 + CREATE_SECONDS
    row = shop.payment()
    shop.io.at["dynamodb UpdateItem"] = partial(shop.store.write_if_unchanged, row, {"reason": "x"}, now=shop.now)
    for _ in range(2):
        assert alarms_of(shop, after_seconds=1) == [Cause.HELD]
        assert "ReconcileFailed" not in shop.counted
    assert alarms_of(shop, after_seconds=1) == []


def test_one_row_that_fails_blocks_no_other(shop: Shop) -> None:
    """Neither one that Stripe does not answer for, nor one that cannot be read, which needs a person."""
    names = "0123456789"
    for name in names:
        shop.deliver(name, payment_method=ASKS_FOR_ACTION)
    ill, malformed, others = names[0], names[1], names[2:]
    shop.stripe.failing[str(shop.payment(ill).payment_intent_id)] = NO_ANSWER
    shop.restore(shop.row(malformed) | {"state": "?"})
    assert alarms_of(shop, after_seconds=REQUIRES_ACTION_SECONDS) == [Cause.UNEXPECTED_ERROR]
    assert {shop.state(name) for name in others} == {PaymentState.CANCELED}
    failed = {line["order_id"] for line in shop.log.lines if "not reconciled" in line["message"]}
    assert failed == {order_id(ill), order_id(malformed)}


def test_rows_leave_half_of_a_run_to_events(shop: Shop) -> None:
    """However long they take."""
    for name in "0123456789":
        shop.deliver(name, payment_method=ASKS_FOR_ACTION)
    shop.stripe.failing["cancel"] = NO_ANSWER
    shop.seconds_a_request = ROWS_SECONDS / 6
    shop.run(after_seconds=REQUIRES_ACTION_SECONDS - 300)
    since = shop.checkpoint.since
    shop.stripe.requests.clear()
    shop.run(after_seconds=300)
    assert 0 < shop.stripe.operations.count("cancel") < 10
    assert shop.checkpoint.since > since


def test_only_unattended_rows_are_visited(shop: Shop) -> None:
    """By the index, not by a scan, a few together. A message claims the others itself."""
    visited = Mock(side_effect=one_after_another)
    shop.parallel = visited
    names = [f"{number:x}" for number in range(24)]
    for name in names:
        shop.crash_before("create", name)
    shop.deliver("f1")
    shop.stripe.events.clear()
    shop.now += 60
    shop.crash_before("create", "f2")
    shop.io.asked.clear()
    shop.run(after_seconds=UNATTENDED_SECONDS - 60)
    pages = [call.args[1] for call in visited.call_args_list if call.args[1] and isinstance(call.args[1][0], str)]
    assert sorted(each for page in pages for each in page) == sorted(map(order_id, names))
    assert max(map(len, pages)) <= IN_PARALLEL
    # Both checkpoints are read, too.
    assert (shop.io.asked.count("dynamodb Scan"), shop.io.asked.count("dynamodb GetItem")) == (0, len(names) + 2)
