"""When what waits is looked at next, at the latest: by the product's own rules, and by the schedules of its jobs."""

from onecharge.payments.charges.protocol import Payment
from onecharge.payments.reconcile import UNATTENDED_SECONDS
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.consumer import BACKOFF_CAP_SECONDS
from republish.republish import RepublishCheckpoint
from republish.waiting import DAY_SECONDS, FIRST_WAIT_SECONDS, republications_due

REPUBLISH_EVERY_SECONDS = 15 * 60
RECONCILE_EVERY_SECONDS = 5 * 60
"""The rates of the two schedules in template.yaml."""

OUTCOME_SECONDS = 60
"""How long a stored change may be on its way to the other service before it is late: it usually takes a second."""

WORK_SECONDS = int(TimeBounds.of(30).record_seconds)
"""How long a worker may take for one message."""


def next_republication(since: float, *, now: int, checkpoint: RepublishCheckpoint | None) -> int:
    """When republish publishes again, at the latest, what waits since then."""
    if checkpoint and republications_due(now - since) > republications_due(checkpoint.round_at - since):
        # It became due after the last round began: the next one publishes it.
        return max(now, checkpoint.round_at) + REPUBLISH_EVERY_SECONDS
    waited = int(now - since)
    doubled = [FIRST_WAIT_SECONDS << times for times in range(7)]
    tomorrow = (waited // DAY_SECONDS + 1) * DAY_SECONDS
    due = next(each for each in [*doubled, tomorrow] if republications_due(each) > republications_due(waited))
    return int(since) + due + REPUBLISH_EVERY_SECONDS


def next_delivery(payment: Payment) -> int:
    """When the row's message is delivered again, at the latest, if it is still in its queue."""
    return max(payment.lease_expires_at, payment.claimed_at + BACKOFF_CAP_SECONDS) + WORK_SECONDS


def next_reconciliation(payment: Payment, now: int) -> int:
    """When reconcile visits the row, at the latest."""
    unattended_at = max(payment.lease_expires_at, payment.claimed_at + UNATTENDED_SECONDS)
    return max(now, unattended_at) + RECONCILE_EVERY_SECONDS


def is_unattended(payment: Payment, now: int) -> bool:
    """Whether no message has claimed the row for so long that none seems to be left."""
    return now >= max(payment.lease_expires_at, payment.claimed_at + UNATTENDED_SECONDS)
