"""A scheduled run: reconciles payment rows with Stripe in both directions, step by step from a checkpoint.

rows ─► Stripe      each unfinished row, shard by shard of their sparse index, the oldest first
Stripe ─► rows      each event of a PaymentIntent, charge or refund since the checkpoint; failed events once more

A row or event that fails does not block the others: it is counted, logged, and retried by later runs. What to do with a
row or an event, Reconciler and StripeEventHandler decide. This module decides what is next, and
reports how far behind it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import batched, takewhile
from typing import Any

import stripe
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.payments.charges.protocol import Payment
from onecharge.payments.charges.reconciler import UNATTENDED_SECONDS
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.event_handler import OUTAGES, StripeEventHandler, cause_of
from onecharge.payments.instruments import Instruments
from onecharge.payments.stripe_events import PaymentIntentEvent, StripeEvent, StripeEvents
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.runtime.alarms import Cause
from onecharge.runtime.checkpoints import CheckpointStore, ConcurrentRun
from onecharge.runtime.dynamodb import ALL_SHARDS, SHARDS
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parallel import Parallel, one_after_another
from reconcile.checkpoint import FailedEvent, ReconcileCheckpoint

FIRST_RUN_SECONDS = 24 * 3600
"""How far back the very first run reads Stripe's events."""

EVENTS_KEPT_SECONDS = 29 * 24 * 3600
"""Stripe keeps events for 30 days (Stripe documentation, "List all events"): a later run starts this far back."""

FINALIZING_SECONDS = 300
"""Events are read once they are this old: by then the charge's own worker has finalized the row, or never will."""

ROUND_OVERDUE_SECONDS = 3600
"""With rows or events this far behind, an order may be stuck without an alarm of its own: so this is one."""

MISSED_MAX = 3
"""So many events in a row that Stripe lists and that never came here: one may be on its way, or deferred."""

FAILED_MAX = 100
"""Failed events that are kept. With so many, all events seem to fail: none is read until some succeed."""

FAILED_ATTEMPTS_MAX = 288
"""A day of runs, one every five minutes: then an event is abandoned, with an alarm."""

ROWS_A_CHECKPOINT = 20
"""The checkpoint is written after each so many rows, and after the last one of a run."""

_ROWS_SHARE, _FAILED_SHARE = 0.5, 0.1
"""Of a run's time, at most; new events have the rest."""


@dataclass(frozen=True)
class ReconcileCharges:
    """One run."""

    store: PaymentStore
    events: StripeEvents
    """Stripe's list of events."""
    handler: StripeEventHandler
    """Handles an event; its reconciler handles a row."""
    checkpoints: CheckpointStore[ReconcileCheckpoint]
    seconds_left: Callable[[], float]
    """Of this invocation."""
    step_seconds: float
    """How long one row, event or page takes at most: with less time left none is begun."""
    instruments: Instruments
    gauge: Callable[[str, float], None]
    is_processed: Callable[[str], bool] = lambda _: False
    """Whether the event of this id was handled when Stripe sent it."""
    at_once: int = 1
    """How many rows, or events of different orders, are reconciled at once."""
    parallel: Parallel = one_after_another

    def __call__(self) -> None:
        """Continue from the checkpoint. An outage ends the run, and the next one continues."""
        try:
            checkpoint = self._checkpoint()
            seconds = self.seconds_left()
            checkpoint = self._visit_rows(checkpoint, reserve=seconds * (1 - _ROWS_SHARE))
            checkpoint = self._retry_failed(checkpoint, reserve=seconds * (1 - _ROWS_SHARE - _FAILED_SHARE))
            checkpoint = self._handle_events(checkpoint)
            self._report_silence(checkpoint)
            self._report_lag(checkpoint)
        except ConcurrentRun:
            self.instruments.count("ConcurrentRun")
            self.instruments.log("concurrent run: the other one continues")
        except (stripe.StripeError, BotoCoreError, ClientError) as error:
            self._report("ReconcileInterrupted", "interrupted: the next run continues", error)

    def _checkpoint(self) -> ReconcileCheckpoint:
        now = self.instruments.now()
        checkpoint = self.checkpoints.read() or ReconcileCheckpoint.first(since=now - FIRST_RUN_SECONDS, now=now)
        oldest = now - EVENTS_KEPT_SECONDS
        if checkpoint.since < oldest:
            checkpoint = replace(checkpoint, since=oldest, until=oldest, after_event=None)
        if checkpoint.since > now - FINALIZING_SECONDS:
            # The clock of an earlier run was ahead: it skipped events that came later, which are read now.
            since = now - FINALIZING_SECONDS - FUTURE_MAX_SECONDS
            checkpoint = replace(checkpoint, since=since, until=since, after_event=None)
        return checkpoint

    # ------------------------------------------------------------ rows ─► Stripe

    def _visit_rows(self, checkpoint: ReconcileCheckpoint, *, reserve: float) -> ReconcileCheckpoint:
        """Continue the current round, at most to its end."""
        if checkpoint.is_between_rounds:
            checkpoint = replace(checkpoint, round_started_at=self.instruments.now())
        visited = 0
        written_at = 0
        while self._has_time(reserve):
            # As many rows as are visited at once: the cursor passes them, and what is slow or fails blocks no others.
            order_ids, after_row = self._unvisited(checkpoint, checkpoint.shard, self.at_once)
            self.parallel(self._visit_row, order_ids)
            visited += len(order_ids)
            checkpoint = self._advance(checkpoint, after_row)
            if checkpoint.is_between_rounds:
                break
            if visited - written_at >= ROWS_A_CHECKPOINT:
                checkpoint, written_at = self.checkpoints.write(checkpoint), visited
        self.instruments.log("rows visited", rows=visited, round_completed=checkpoint.is_between_rounds)
        return self.checkpoints.write(checkpoint)

    def _unvisited(
        self, checkpoint: ReconcileCheckpoint, shard: int, limit: int
    ) -> tuple[list[str], dict[str, Any] | None]:
        """The shard's oldest rows that the current round has not visited; and the cursor after them."""
        return self.store.unfinished(
            ALL_SHARDS[shard],
            claimed_before=checkpoint.round_started_at - UNATTENDED_SECONDS,
            after=checkpoint.after_row if shard == checkpoint.shard else None,
            limit=limit,
        )

    def _advance(self, checkpoint: ReconcileCheckpoint, after_row: dict[str, Any] | None) -> ReconcileCheckpoint:
        if after_row is not None:
            return replace(checkpoint, after_row=after_row)
        if checkpoint.shard + 1 < SHARDS:
            return replace(checkpoint, shard=checkpoint.shard + 1, after_row=None)
        return replace(checkpoint, shard=0, after_row=None, round_completed_at=self.instruments.now())

    def _visit_row(self, order_id: str) -> None:
        payment: Payment | None = None
        try:
            payment = self.store.read(order_id)
            if payment is None or self.handler.reconciler.reconcile(payment):
                return
        except Exception as error:  # A row that fails does not block the others.
            self._report("ReconcileFailed", "row not reconciled: the next round retries", error, order_id=order_id)
        if payment is not None and payment.is_overdue(self.instruments.now()):
            self.instruments.count("AbandonedPayment")
            message = "abandoned payment: unfinished for a day, and no message claims it"
            self.instruments.log(message, alarm=Cause.OVERDUE, **payment.log_fields, state=payment.state)

    # ------------------------------------------------------------ Stripe ─► rows

    def _retry_failed(self, checkpoint: ReconcileCheckpoint, *, reserve: float) -> ReconcileCheckpoint:
        """Retry the events that failed before."""
        for failed in checkpoint.failed:
            if not self._has_time(reserve):
                break
            others = tuple(each for each in checkpoint.failed if each != failed)
            event: StripeEvent | None = None
            try:
                event = self.events.retrieve_event(failed.event_id)
                again = checkpoint.again_before > 0
                error = self._try_to_handle(event, again=again) if event else None
            except Exception as not_retrieved:  # It does not block the others.
                error = not_retrieved
            if error is None:
                checkpoint = replace(checkpoint, failed=others)
            elif failed.attempts < FAILED_ATTEMPTS_MAX:
                self._report_failed(failed, event, error)
                checkpoint = replace(checkpoint, failed=(*others, replace(failed, attempts=failed.attempts + 1)))
            else:
                self.instruments.count(Alarm(Cause.RECONCILE_BEHIND))
                self._report_failed(
                    failed, event, error, "EventAbandoned", "event abandoned: find it at Stripe by its id"
                )
                checkpoint = replace(checkpoint, failed=others)
        return checkpoint

    def _handle_events(self, checkpoint: ReconcileCheckpoint) -> ReconcileCheckpoint:
        """Handle Stripe's next events; one that fails is kept, and retried by later runs."""
        finalized_until = self.instruments.now() - FINALIZING_SECONDS
        while self._has_time():
            if checkpoint.since == checkpoint.until:
                checkpoint = replace(checkpoint, until=max(checkpoint.since, finalized_until))
            if checkpoint.since == checkpoint.until:
                break
            try:
                page = self.events.list_events(
                    since=checkpoint.since, until=checkpoint.until, after=checkpoint.after_event
                )
            except stripe.StripeError as error:
                self._report("ReconcileInterrupted", "events not listed: the next run continues", error)
                break
            for events in batched(page.events, self.at_once, strict=False):
                if not self._has_time() or len(checkpoint.failed) >= FAILED_MAX:
                    return self.checkpoints.write(checkpoint)
                checkpoint = self._handle_at_once(checkpoint, events)
                if checkpoint.after_event != events[-1].event_id:
                    return self.checkpoints.write(checkpoint)
            since = checkpoint.since if page.next else checkpoint.until
            checkpoint = self.checkpoints.write(replace(checkpoint, since=since, after_event=page.next))
        return self.checkpoints.write(checkpoint)

    def _handle_at_once(self, checkpoint: ReconcileCheckpoint, events: Sequence[StripeEvent]) -> ReconcileCheckpoint:
        """Handle the events, each order's one after another; returns the checkpoint before the first that is left.

        Always one is handled, so that every run gets on. The next run handles some of what follows once more, which is
        harmless.
        """
        of_orders: dict[str, list[StripeEvent]] = {}
        for event in events:
            # What names no order may be about any of them.
            of_orders.setdefault(event.order_id or "", []).append(event)
        again = checkpoint.since < checkpoint.again_before
        errors: dict[str, Exception | None] = {}

        def handle(of_order: Sequence[StripeEvent]) -> None:
            for number, event in enumerate(of_order):
                if number == 0 or self._has_time():
                    errors[event.event_id] = self._try_to_handle(event, again=again)

        self.parallel(handle, list(of_orders.values()))
        for event in takewhile(lambda event: event.event_id in errors, events):
            checkpoint = self._count_missed(checkpoint, event)
            error = errors[event.event_id]
            if error is not None:
                failed = FailedEvent(event.event_id)
                self._report_failed(failed, event, error)
                checkpoint = replace(checkpoint, failed=(*checkpoint.failed, failed))
            checkpoint = replace(checkpoint, after_event=event.event_id)
        return checkpoint

    def _try_to_handle(self, event: StripeEvent, *, again: bool) -> Exception | None:
        try:
            if again or not self._can_be_skipped(event):
                self.handler.handle(event)
        except Exception as error:  # An event that fails does not block the others.
            return error
        return None

    def _can_be_skipped(self, event: StripeEvent) -> bool:
        """Whether nothing is left to do: so a dispute raises one alarm.

        A PaymentIntent's event is never skipped: it may have been left to a worker that crashed.
        """
        return not isinstance(event, PaymentIntentEvent) and self.is_processed(event.event_id)

    def _count_missed(self, checkpoint: ReconcileCheckpoint, event: StripeEvent) -> ReconcileCheckpoint:
        """Whether Stripe's own delivery of the event has come, too; not of what is older than the stack."""
        if checkpoint.since < checkpoint.expects_webhooks_since:
            return checkpoint
        missed = 0 if self.is_processed(event.event_id) else checkpoint.missed_in_a_row + 1
        return replace(checkpoint, missed_in_a_row=missed)

    def _report_silence(self, checkpoint: ReconcileCheckpoint) -> None:
        if checkpoint.missed_in_a_row >= MISSED_MAX:
            self.instruments.count("WebhookSilent")
            message = "Stripe has events that never came here: is there an endpoint, with our signing secret?"
            self.instruments.log(message, alarm=Cause.WEBHOOK_SILENT, missed=checkpoint.missed_in_a_row)

    # ------------------------------------------------------------ reports

    def _report_lag(self, checkpoint: ReconcileCheckpoint) -> None:
        now = self.instruments.now()
        rows_seconds = self._rows_behind_seconds(checkpoint, now)
        events_seconds = now - checkpoint.since
        self.gauge("RowsBehindSeconds", rows_seconds)
        self.gauge("EventsBehindSeconds", events_seconds)
        lag: dict[str, Any] = {"rows_behind_seconds": rows_seconds, "events_behind_seconds": events_seconds}
        round_seconds = now - checkpoint.round_completed_at
        if max(round_seconds, events_seconds) > ROUND_OVERDUE_SECONDS:
            self.instruments.count("ReconcileOverdue")
            message = "reconciliation is behind: no round was completed for an hour"
            self.instruments.log(message, alarm=Cause.RECONCILE_BEHIND, **lag, round_seconds=round_seconds)
        self.instruments.log("reconciled", **lag, failed_events=len(checkpoint.failed))

    def _rows_behind_seconds(self, checkpoint: ReconcileCheckpoint, now: int) -> int:
        """How long the oldest row has waited that the current round has not visited; 0 between rounds."""
        if checkpoint.is_between_rounds:
            return 0
        oldest = [
            payment
            for shard in range(checkpoint.shard, SHARDS)
            for order_id in self._unvisited(checkpoint, shard, 1)[0]
            if (payment := self.store.read(order_id))
        ]
        return max((now - _waits_since(payment) for payment in oldest), default=0)

    def _report_failed(
        self,
        failed: FailedEvent,
        event: StripeEvent | None,
        error: Exception,
        metric: str = "ReconcileFailed",
        message: str = "event not handled: the next run retries",
    ) -> None:
        about = {"order_id": event.order_id, "payment_intent_id": event.payment_intent_id} if event else {}
        self._report(metric, message, error, event_id=failed.event_id, attempts=failed.attempts, **about)

    def _report(self, metric: str, message: str, error: Exception, **about: object) -> None:
        self.instruments.count(metric)
        cause = cause_of(error)
        if cause:
            self.instruments.count(Alarm(cause))
        unexpected = None if isinstance(error, OUTAGES) else error
        details = {**about, "error": type(error).__name__} | ({"cause": cause} if cause else {})
        self.instruments.logger.warning(message, extra=details, exc_info=unexpected)

    # ------------------------------------------------------------ time

    def _has_time(self, reserve: float = 0) -> bool:
        return self.seconds_left() - reserve >= self.step_seconds


def _waits_since(payment: Payment) -> int:
    """When it was last claimed, or its cancellation was requested."""
    return max(payment.claimed_at, payment.cancel_requested_at or 0)
