"""When what waits is looked at next, at the latest: by the product's own rules, and by the schedules of its jobs.

Each time follows from what is stored, a row or a job's checkpoint, and not from the moment of the question: a time that
has passed says that something is late.
"""

from itertools import count

from onecharge.orders.republication import RepublishCheckpoint, republications_due
from onecharge.payments.rows import Payment
from onecharge.payments.stripe_events import ReconcileCheckpoint
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.consumer import BACKOFF_CAP_SECONDS

REPUBLISH_EVERY_SECONDS = 15 * 60
RECONCILE_EVERY_SECONDS = 5 * 60
"""The rates of the two schedules in template.yaml."""

EVENT_SECONDS = 40 * 60
"""How old an event of Stripe's is, at most, when reconcile has read it, if its webhook did not come. It runs every five
minutes, and reads those that are five minutes old, each half hour while webhooks arrive (functions/reconcile/run.py).
"""

LATE_SECONDS = 2 * EVENT_SECONDS
"""A job whose checkpoint is this old does not run, or is behind."""

OUTCOME_SECONDS = 60
"""How long a stored change may be on its way to the other service before it is late: it usually takes a second."""

WORK_SECONDS = int(TimeBounds.of(30).record_seconds)
"""How long a worker may take for one message."""

_UNATTENDED_SECONDS = 30 * 60
"""A message backs off for 15 minutes at most: a row that was claimed longer ago has none."""


def next_republication(since: float, checkpoint: RepublishCheckpoint | None) -> int:
    """When republish publishes again, at the latest, what waits since then."""
    last_round_at = checkpoint.round_at if checkpoint else int(since)
    done = republications_due(last_round_at - since)
    rounds = count(last_round_at, REPUBLISH_EVERY_SECONDS)
    due = next(each for each in rounds if republications_due(each - since) > done)
    # Without a checkpoint it is not known when rounds begin.
    return due if checkpoint else due + REPUBLISH_EVERY_SECONDS


def next_delivery(payment: Payment, hidden_seconds: int) -> int:
    """When the row's message is delivered again, at the latest, if it is still in its queue.

    Args:
        hidden_seconds: the queue's visibility timeout, after which the message of a worker that died comes back.
    """
    has_died = payment.lease_owner is not None
    hidden_until = payment.claimed_at + (hidden_seconds if has_died else BACKOFF_CAP_SECONDS)
    return max(payment.lease_expires_at, hidden_until) + WORK_SECONDS


def next_reading(checkpoint: ReconcileCheckpoint | None) -> int | None:
    """When reconcile has read Stripe's next events, at the latest; None if it has never run."""
    return checkpoint.since + EVENT_SECONDS if checkpoint else None


def unattended_at(payment: Payment) -> int:
    """From when on no message seems to be left that claims the row."""
    return max(payment.lease_expires_at, payment.claimed_at + _UNATTENDED_SECONDS)
