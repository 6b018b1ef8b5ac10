"""A scheduled run: payment rows are reconciled with Stripe in both directions, a bounded piece at a time.

rows ─► Stripe      the unfinished rows, shard by shard of their sparse index, from the oldest on
Stripe ─► rows      each event of a PaymentIntent, charge or refund since the checkpoint; those that failed once more

Each row and each event fails alone: it is counted, logged, and tried again. The layer's Reconciler decides what to do
with a row, and its StripeEventHandler with an event, as for a webhook; this module knows what comes next, and says
how far behind it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import stripe
from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.payments.charges.gateway import PaymentIntentEvent, StripeEvent, StripeGateway
from onecharge.payments.charges.protocol import Payment
from onecharge.payments.charges.reconciler import UNATTENDED_SECONDS, Reconciler, StripeUnavailable
from onecharge.payments.charges.store import UNFINISHED_SHARDS, PaymentStore
from onecharge.payments.processed_events import ProcessedEvents
from onecharge.payments.stripe_events import OUTAGES, StripeEventHandler
from onecharge.payments.stripe_responses import RULES, classify
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.runtime.checkpoints import CheckpointStore, ConcurrentRun
from reconcile.checkpoint import FailedEvent, ReconcileCheckpoint

FIRST_RUN_SECONDS = 24 * 3600
"""How far back the very first run reads Stripe's events."""

EVENTS_KEPT_SECONDS = 29 * 24 * 3600
"""Stripe keeps events for 30 days (Stripe documentation, "List all events"): a run that comes later starts here."""

FINALIZING_SECONDS = 300
"""Events are read once they are this old: by then whoever made the charge has finalized it, or never will."""

ROUND_OVERDUE_SECONDS = 3600
"""If rows or events are this far behind, what is stuck may be stuck unseen."""

FAILED_MAX = 100
"""Failed events that are kept. If there are so many, something is wrong with all: none is read until there is room."""

FAILED_ATTEMPTS_MAX = 288
"""A day of runs, one every five minutes: then an event is given up with an alarm."""

ROWS_A_CHECKPOINT = 20
"""After so many rows the checkpoint is written, and at the end of a run's rows."""

_ROWS_SHARE, _FAILED_SHARE = 0.5, 0.1
"""Of a run's time: the rest is for new events, and for what the others leave."""


@dataclass(frozen=True)
class ReconcileCharges:
    """One run; `clock` gives the time in epoch seconds."""

    store: PaymentStore
    gateway: StripeGateway
    reconciler: Reconciler
    events: StripeEventHandler
    processed: ProcessedEvents
    """The webhook's; it is only read."""
    checkpoints: CheckpointStore[ReconcileCheckpoint]
    clock: Callable[[], float]
    seconds_left: Callable[[], float]
    """Of this invocation."""
    step_seconds: float
    """What one row, event or page needs at the most: with less time left none is begun."""
    logger: Logger
    count: Callable[[str], None]
    gauge: Callable[[str, float], None]

    def __call__(self) -> None:
        """Go on where the last run stopped. Whatever stops this run is left to the next."""
        try:
            checkpoint = self._checkpoint()
            seconds = self.seconds_left()
            checkpoint = self._rows(checkpoint, reserve=seconds * (1 - _ROWS_SHARE))
            checkpoint = self._failed(checkpoint, reserve=seconds * (1 - _ROWS_SHARE - _FAILED_SHARE))
            checkpoint = self._events(checkpoint)
            self._report_lag(checkpoint)
        except ConcurrentRun:
            self.count("ConcurrentRun")
            self.logger.info("another run goes on")
        except (stripe.StripeError, BotoCoreError, ClientError) as error:
            self._report("ReconcileInterrupted", "interrupted: the next run goes on", error)

    def _checkpoint(self) -> ReconcileCheckpoint:
        now = self._now()
        checkpoint = self.checkpoints.read() or ReconcileCheckpoint.first(since=now - FIRST_RUN_SECONDS, now=now)
        oldest = now - EVENTS_KEPT_SECONDS
        if checkpoint.since < oldest:
            checkpoint = replace(checkpoint, since=oldest, until=oldest, after_event=None)
        if checkpoint.since > now - FINALIZING_SECONDS:
            # The clock of a run before was ahead: what came since was not there to be read, and is read again.
            since = now - FINALIZING_SECONDS - FUTURE_MAX_SECONDS
            checkpoint = replace(checkpoint, since=since, until=since, after_event=None)
        return checkpoint

    # ------------------------------------------------------------ rows ─► Stripe

    def _rows(self, checkpoint: ReconcileCheckpoint, *, reserve: float) -> ReconcileCheckpoint:
        """Go on with the present round, and at the most to its end."""
        if checkpoint.is_between_rounds:
            checkpoint = replace(checkpoint, round_started_at=self._now())
        visited = 0
        while self._has_time(reserve):
            # One row a query, so that the cursor passes each row by itself: one that takes long, or fails, blocks none.
            order_ids, after_row = self._unvisited(checkpoint, checkpoint.shard)
            for order_id in order_ids:
                self._row(order_id)
                visited += 1
            checkpoint = self._advanced(checkpoint, after_row)
            if checkpoint.is_between_rounds:
                break
            if order_ids and visited % ROWS_A_CHECKPOINT == 0:
                checkpoint = self.checkpoints.write(checkpoint)
        self.logger.info("rows visited", extra={"rows": visited, "round_completed": checkpoint.is_between_rounds})
        return self.checkpoints.write(checkpoint)

    def _unvisited(self, checkpoint: ReconcileCheckpoint, shard: int) -> tuple[list[str], dict[str, Any] | None]:
        """The shard's oldest row that the present round has not visited yet; and where to go on after it."""
        return self.store.unfinished(
            str(shard),
            since_before=checkpoint.round_started_at - UNATTENDED_SECONDS,
            after=checkpoint.after_row if shard == checkpoint.shard else None,
            limit=1,
        )

    def _advanced(self, checkpoint: ReconcileCheckpoint, after_row: dict[str, Any] | None) -> ReconcileCheckpoint:
        if after_row is not None:
            return replace(checkpoint, after_row=after_row)
        if checkpoint.shard + 1 < UNFINISHED_SHARDS:
            return replace(checkpoint, shard=checkpoint.shard + 1, after_row=None)
        return replace(checkpoint, shard=0, after_row=None, round_completed_at=self._now())

    def _row(self, order_id: str) -> None:
        payment: Payment | None = None
        try:
            payment = self.store.read(order_id)
            if payment is None or self.reconciler.reconcile(payment):
                return
        except Exception as error:  # A row that fails blocks no other, whatever is wrong with it.
            self._report("ReconcileFailed", "row not reconciled: the next round tries again", error, order_id=order_id)
        if payment is not None and payment.is_overdue(self._now()):
            self.count("AbandonedPayment")
            self.count("Alarm")
            about = {"order_id": order_id, "attempt": payment.attempt, "state": payment.state}
            self.logger.error("abandoned payment: unfinished for a day, and nobody works on it", extra=about)

    # ------------------------------------------------------------ Stripe ─► rows

    def _failed(self, checkpoint: ReconcileCheckpoint, *, reserve: float) -> ReconcileCheckpoint:
        """Handle the events again that have failed before."""
        for failed in checkpoint.failed:
            if not self._has_time(reserve):
                break
            others = tuple(each for each in checkpoint.failed if each != failed)
            event: StripeEvent | None = None
            try:
                event = self.gateway.retrieve_event(failed.event_id)
                error = self._handled(event) if event else None
            except Exception as not_retrieved:  # Whatever is wrong with it, it blocks no other.
                error = not_retrieved
            if error is None:
                checkpoint = replace(checkpoint, failed=others)
            elif failed.attempts < FAILED_ATTEMPTS_MAX:
                self._report_failed(failed, event, error)
                checkpoint = replace(checkpoint, failed=(*others, replace(failed, attempts=failed.attempts + 1)))
            else:
                self.count("Alarm")
                self._report_failed(failed, event, error, "EventAbandoned", "event given up: look at it at Stripe")
                checkpoint = replace(checkpoint, failed=others)
        return checkpoint

    def _events(self, checkpoint: ReconcileCheckpoint) -> ReconcileCheckpoint:
        """Read on in Stripe's events; one that fails is kept and tried again by the next runs."""
        finalized_until = self._now() - FINALIZING_SECONDS
        while self._has_time():
            if checkpoint.since == checkpoint.until:
                checkpoint = replace(checkpoint, until=max(checkpoint.since, finalized_until))
            if checkpoint.since == checkpoint.until:
                break
            try:
                page = self.gateway.list_events(
                    since=checkpoint.since, until=checkpoint.until, after=checkpoint.after_event
                )
            except stripe.StripeError as error:
                self._report("ReconcileInterrupted", "events not listed: the next run goes on", error)
                break
            for event in page.events:
                if not self._has_time() or len(checkpoint.failed) >= FAILED_MAX:
                    return self.checkpoints.write(checkpoint)
                checkpoint = replace(self._event(checkpoint, event), after_event=event.event_id)
            since = checkpoint.since if page.next else checkpoint.until
            checkpoint = self.checkpoints.write(replace(checkpoint, since=since, after_event=page.next))
        return self.checkpoints.write(checkpoint)

    def _event(self, checkpoint: ReconcileCheckpoint, event: StripeEvent) -> ReconcileCheckpoint:
        error = self._handled(event)
        if error is None:
            return checkpoint
        failed = FailedEvent(event.event_id)
        self._report_failed(failed, event, error)
        return replace(checkpoint, failed=(*checkpoint.failed, failed))

    def _handled(self, event: StripeEvent) -> Exception | None:
        try:
            if not self._is_processed(event):
                self.events.handle(event)
        except Exception as error:  # An event that fails blocks no other, whatever is wrong with it.
            return error
        return None

    def _is_processed(self, event: StripeEvent) -> bool:
        """Whether the webhook has left nothing to do: so a dispute is one alarm.

        Not so a PaymentIntent's event, which the webhook leaves to the worker that holds the row.
        """
        return not isinstance(event, PaymentIntentEvent) and self.processed.contains(event.event_id)

    # ------------------------------------------------------------ what is said of it

    def _report_lag(self, checkpoint: ReconcileCheckpoint) -> None:
        now = self._now()
        rows_seconds = self._rows_behind_seconds(checkpoint, now)
        events_seconds = now - checkpoint.since
        self.gauge("RowsBehindSeconds", rows_seconds)
        self.gauge("EventsBehindSeconds", events_seconds)
        lag = {"rows_behind_seconds": rows_seconds, "events_behind_seconds": events_seconds}
        round_seconds = now - checkpoint.round_completed_at
        if max(round_seconds, events_seconds) > ROUND_OVERDUE_SECONDS:
            self.count("ReconcileOverdue")
            self.count("Alarm")
            self.logger.error("no round was completed for an hour", extra={**lag, "round_seconds": round_seconds})
        self.logger.info("reconciled", extra={**lag, "failed_events": len(checkpoint.failed)})

    def _rows_behind_seconds(self, checkpoint: ReconcileCheckpoint, now: int) -> int:
        """How long the oldest row that the present round has not visited yet has waited; 0 if it has visited all."""
        if checkpoint.is_between_rounds:
            return 0
        oldest = [
            payment
            for shard in range(checkpoint.shard, UNFINISHED_SHARDS)
            for order_id in self._unvisited(checkpoint, shard)[0]
            if (payment := self.store.read(order_id))
        ]
        return max((now - _waits_since(payment) for payment in oldest), default=0)

    def _report_failed(
        self,
        failed: FailedEvent,
        event: StripeEvent | None,
        error: Exception,
        metric: str = "ReconcileFailed",
        message: str = "event not handled: the next run tries again",
    ) -> None:
        about = {"order_id": event.order_id, "payment_intent_id": event.payment_intent_id} if event else {}
        self._report(metric, message, error, event_id=failed.event_id, attempts=failed.attempts, **about)

    def _report(self, metric: str, message: str, error: Exception, **about: object) -> None:
        self.count(metric)
        if _needs_a_person(error):
            self.count("Alarm")
        expected = isinstance(error, OUTAGES)
        self.logger.warning(message, extra={**about, "error": type(error).__name__}, exc_info=not expected and error)

    # ------------------------------------------------------------ time

    def _has_time(self, reserve: float = 0) -> bool:
        return self.seconds_left() - reserve >= self.step_seconds

    def _now(self) -> int:
        return int(self.clock())


def _needs_a_person(error: Exception) -> bool:
    """Whether it does not pass by itself."""
    if isinstance(error, StripeUnavailable):
        return error.needs_a_person
    if isinstance(error, stripe.StripeError):
        return RULES[classify(error).kind].alarm
    return not isinstance(error, OUTAGES)


def _waits_since(payment: Payment) -> int:
    """Since when nobody has worked on it."""
    return max(payment.claimed_at, payment.cancel_requested_at or 0)
