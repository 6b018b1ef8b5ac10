"""When what waits is looked at next: as the jobs do it."""

import re
from dataclasses import replace

from onecharge.contract.states import PaymentState
from onecharge.payments.charges.protocol import FrozenRequest, Payment
from ops import schedule
from ops.output import duration_of
from republish.republish import RepublishCheckpoint
from republish.waiting import republications_due
from testing.harness import PROJECT

NOW = 1_800_000_000
PAYMENT = Payment(
    request=FrozenRequest("ord_1", 2500, "EUR", "cus_1", NOW),
    attempt=1,
    payment_method="pm_1",
    state=PaymentState.PENDING,
    claimed_at=NOW,
    lease_expires_at=NOW + 35,
)


def test_the_rates_are_those_of_the_template() -> None:
    """The two schedules of the core, in minutes."""
    template = (PROJECT / "template.yaml").read_text()
    for function, seconds in (
        ("RepublishFunction", schedule.REPUBLISH_EVERY_SECONDS),
        ("ReconcileFunction", schedule.RECONCILE_EVERY_SECONDS),
    ):
        [minutes] = re.findall(rf"\n  {function}:(?:\n(?:   .*)?)*?rate\((\d+) minutes\)", template)
        assert int(minutes) * 60 == seconds


def test_the_next_republication_is_when_it_becomes_due() -> None:
    """Neither a second earlier nor later than republish's own rule, and one run of the job."""
    for waited in (0, 1, 899, 900, 1799, 1800, 3600, 20 * 3600, 86_399, 86_400, 30 * 86_400):
        since = NOW - waited
        due_at = schedule.next_republication(since, now=NOW, checkpoint=None) - schedule.REPUBLISH_EVERY_SECONDS
        assert due_at > NOW
        assert republications_due(due_at - 1 - since) == republications_due(waited) < republications_due(due_at - since)


def test_what_became_due_since_the_last_round_is_published_by_the_next() -> None:
    """At the latest one run from now."""
    checkpoint = RepublishCheckpoint(round_at=NOW - 600)
    assert schedule.next_republication(NOW - 1000, now=NOW, checkpoint=checkpoint) == NOW + 900


def test_a_row_is_delivered_then_reconciled() -> None:
    """A message backs off for 15 minutes at most; a row without one is visited after half an hour."""
    assert schedule.next_delivery(PAYMENT) == NOW + 900 + 26
    assert schedule.next_reconciliation(PAYMENT, NOW) == NOW + 1800 + 300
    assert schedule.next_reconciliation(replace(PAYMENT, claimed_at=NOW - 9999, lease_expires_at=0), NOW) == NOW + 300
    assert not schedule.is_unattended(PAYMENT, NOW + 1799)
    assert schedule.is_unattended(PAYMENT, NOW + 1800)


def test_a_duration_has_two_units() -> None:
    """Enough to act on."""
    shown = [duration_of(seconds) for seconds in (0, 59, 61, 90_061, 3600)]
    assert shown == ["0 s", "59 s", "1 min 1 s", "1 d 1 h", "1 h"]
