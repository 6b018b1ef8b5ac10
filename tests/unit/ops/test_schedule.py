"""When what waits is looked at next: as the jobs do it."""

import re

from onecharge.orders.republication import RepublishCheckpoint, republications_due
from onecharge.payments.stripe_events import ReconcileCheckpoint
from ops import schedule
from ops.output import duration_of
from reconcile import run
from tests.shop.builders import T0, payment
from tests.support.harness import PROJECT

NOW = T0


def test_the_rates_are_those_of_the_template() -> None:
    """The two schedules of the core, in minutes."""
    template = (PROJECT / "template.yaml").read_text()
    for function, seconds in (
        ("RepublishFunction", schedule.REPUBLISH_EVERY_SECONDS),
        ("ReconcileFunction", schedule.RECONCILE_EVERY_SECONDS),
    ):
        [minutes] = re.findall(rf"\n  {function}:(?:\n(?:   .*)?)*?rate\((\d+) minutes\)", template)
        assert int(minutes) * 60 == seconds


def test_an_event_is_read_as_reconcile_reads_it() -> None:
    """Once it is old enough, at the next list, in the next run."""
    waits = run.FINALIZING_SECONDS + run.LISTED_AFTER_SECONDS + schedule.RECONCILE_EVERY_SECONDS
    assert waits == schedule.EVENT_SECONDS


def test_the_next_republication_is_when_it_becomes_due() -> None:
    """By republish's own rule: not due a round before, due in the round of that time; each round once."""
    for waited in (0, 1, 899, 900, 1799, 1800, 3600, 20 * 3600, 86_399, 86_400, 30 * 86_400):
        since, checkpoint = NOW - waited, RepublishCheckpoint(round_at=NOW)
        until = schedule.next_republication(since, checkpoint)
        assert (until - NOW) % schedule.REPUBLISH_EVERY_SECONDS == 0
        before = until - schedule.REPUBLISH_EVERY_SECONDS
        assert republications_due(before - since) == republications_due(waited) < republications_due(until - since)


def test_before_the_first_round_it_is_one_run_after_it_becomes_due() -> None:
    """No checkpoint says when rounds begin."""
    assert schedule.next_republication(NOW, None) == NOW + 2 * schedule.REPUBLISH_EVERY_SECONDS


def test_a_row_is_delivered_until_it_is_unattended() -> None:
    """A message backs off for 15 minutes at most, and that of a worker that died is hidden as long as the queue hides
    it; a row without one is visited by reconcile after half an hour."""
    assert schedule.next_delivery(payment(lease_owner=None), 72) == NOW + 900 + 26
    assert schedule.next_delivery(payment(), 72) == NOW + 72 + 26
    assert schedule.unattended_at(payment()) == NOW + run.UNATTENDED_SECONDS


def test_stripes_events_are_read_a_list_after_the_checkpoint() -> None:
    """If reconcile has never run, nobody knows."""
    assert schedule.next_reading(ReconcileCheckpoint(since=NOW)) == NOW + schedule.EVENT_SECONDS
    assert schedule.next_reading(None) is None


def test_a_duration_has_two_units() -> None:
    """Enough to act on."""
    shown = [duration_of(seconds) for seconds in (0, 59, 61, 90_061, 3600)]
    assert shown == ["0 s", "59 s", "1 min 1 s", "1 d 1 h", "1 h"]
