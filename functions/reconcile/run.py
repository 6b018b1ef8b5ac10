"""One scheduled run: reconciles rows with Stripe in both directions, step by step from a checkpoint.

rows ─► Stripe      each unfinished row, shard by shard of their sparse index, the oldest first
Stripe ─► rows      each event since the checkpoint, the newest first; events that failed, once more

A row or an event that fails does not block the others: it is counted, logged, and retried by later runs. This module
decides what is next, and reports how far behind it is; payments/sync.py does the work.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import batched
from typing import Any

import stripe

from onecharge.payments.charge_rules import Payment
from onecharge.payments.instruments import Instruments
from onecharge.payments.reconcile_checkpoint import (
    ROUND_OVERDUE_SECONDS,
    AlarmedEvent,
    FailedEvent,
    ReconcileCheckpoint,
)
from onecharge.payments.stripe_events import (
    RECEIVED_STEP_SECONDS,
    Received,
    StripeEvent,
    list_events,
    retrieve_event,
)
from onecharge.payments.sync import OUTAGES, UNATTENDED_SECONDS, cause_of, reconcile_row, sync
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.checkpoints import CheckpointStore, ConcurrentRun
from onecharge.runtime.dynamodb import ALL_SHARDS, SHARDS
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.paging import paged
from onecharge.runtime.parallel import Parallel
from onecharge.runtime.secrets import logged_as

IN_PARALLEL = 5
"""Rows or events. Most of the time is Stripe's: with 200 to 300 ms for a PaymentIntent, five make 17 to 25 requests a
second, and Stripe allows 25 of one kind by default."""

STEP_SECONDS = 20
"""How long a row, an event or a page takes at most: with less time left none is begun."""

FIRST_RUN_SECONDS = 24 * 3600
"""How far back the very first run reads Stripe's events."""

EVENTS_KEPT_SECONDS = 29 * 24 * 3600
"""Stripe keeps events for 30 days (Stripe documentation, "List all events"): a later run starts this far back."""

REREAD_SECONDS = FUTURE_MAX_SECONDS
"""Each reading begins this much before what has been read: the clock of an earlier run may have been ahead of Stripe's,
and Stripe may list an event late. Applying an event again changes nothing."""

FINALIZING_SECONDS = 300
"""Events are read once they are this old: by then the charge's own worker has finalized the row, or never will."""

SILENT_EVENTS = 3
"""With this many events at Stripe that are newer than all that were received, the webhook is silent: one or two may be
on their way, or deferred."""

FAILED_MAX = 100
"""Failed events that are kept. With this many, all events seem to fail: none is read until some succeed."""

ALARMED_MAX = 100
"""Events that raised an alarm and are remembered for as long as they are read again."""

FAILED_SECONDS = 24 * 3600
"""After so long an event that fails is abandoned, with an alarm."""

LISTED_AFTER_SECONDS = 30 * 60
"""While webhooks arrive, events are listed this often: Stripe counts reads (Stripe documentation, "Rate limits": 500 a
transaction, and 10,000 a month at least), and a list in every run is 8,640. Once none has arrived for so long, every
run lists them."""

_ROWS_SHARE, _FAILED_SHARE = 0.5, 0.1
"""Of a run's time, at most; new events have the rest."""


class ReconcileRun:
    """One run, and how far it has come."""

    def __init__(
        self,
        *,
        make_tools: Callable[[], Tools],
        instruments: Instruments,
        state: CheckpointStore[ReconcileCheckpoint],
        received: CheckpointStore[Received],
        seconds_left: Callable[[], float],
        gauge: Callable[[str, float], None],
        parallel: Parallel,
    ) -> None:
        """Args:
        make_tools: tools for one row or event, with a deadline from now. Raises SecretUnavailable.
        seconds_left: of this invocation.
        """
        self._make_tools, self._instruments = make_tools, instruments
        self._state, self._received = state, received
        self._seconds_left, self._gauge, self._parallel = seconds_left, gauge, parallel

    def run(self) -> None:
        """Continue from the checkpoint. An outage ends the run, and the next one continues."""
        try:
            tools = self._make_tools()
            self._store, self._client = tools.payments, tools.stripe.client
            self._checkpoint = self._read_checkpoint()
            seconds = self._seconds_left()
            self._visit_rows(reserve=seconds * (1 - _ROWS_SHARE))
            self._retry_failed(reserve=seconds * (1 - _ROWS_SHARE - _FAILED_SHARE))
            received = self._received.read() or Received()
            self._apply_events(received)
            self._report_silence(received)
            self._report_lag()
        except ConcurrentRun:
            self._instruments.count("ConcurrentRun")
            self._instruments.log("concurrent run: the other one continues")
        except OUTAGES as error:
            self._report("ReconcileInterrupted", "interrupted: the next run continues", error)

    def _read_checkpoint(self) -> ReconcileCheckpoint:
        now = self._instruments.now()
        checkpoint = self._state.read() or ReconcileCheckpoint.first(since=now - FIRST_RUN_SECONDS, now=now)
        oldest = now - EVENTS_KEPT_SECONDS
        if checkpoint.since < oldest:
            return checkpoint.reading_since(oldest)
        if checkpoint.since > now - FINALIZING_SECONDS:
            # The clock of an earlier run was ahead: what came since is read again.
            return checkpoint.reading_since(now - FINALIZING_SECONDS)
        return checkpoint

    def _advance(self, **changes: Any) -> None:
        self._checkpoint = replace(self._checkpoint, **changes)

    def _write(self) -> None:
        """Write the checkpoint. Raises ConcurrentRun if another run has written it since."""
        self._checkpoint = self._state.write(self._checkpoint)

    # ------------------------------------------------------------ rows ─► Stripe

    def _visit_rows(self, *, reserve: float) -> None:
        """Continue the present round, at most to its end."""
        if self._checkpoint.is_between_rounds:
            self._advance(round_started_at=self._instruments.now())
        visited, claimed_before = 0, self._checkpoint.round_started_at - UNATTENDED_SECONDS
        read = partial(self._store.unfinished, claimed_before=claimed_before, limit=IN_PARALLEL)
        start = self._checkpoint.shard, self._checkpoint.after_row
        for order_ids, (shard, after_row) in paged(ALL_SHARDS, read, start, has_time=lambda: self._has_time(reserve)):
            self._parallel(self._visit_row, order_ids)
            visited += len(order_ids)
            self._advance(shard=shard % SHARDS, after_row=after_row)
            if shard == SHARDS:
                self._advance(round_completed_at=self._instruments.now())
        self._instruments.log("rows visited", rows=visited, round_completed=self._checkpoint.is_between_rounds)
        self._write()

    def _visit_row(self, order_id: str) -> None:
        payment: Payment | None = None
        try:
            payment = self._store.read(order_id)
            if payment is None or reconcile_row(payment, self._make_tools()):
                return
        except Exception as error:  # A row that fails does not block the others.
            self._report("ReconcileFailed", "row not reconciled: the next round retries", error, order_id=order_id)
        if payment is not None and payment.is_overdue(self._instruments.now()):
            self._instruments.count("AbandonedPayment")
            message = "abandoned payment: unfinished for a day, and no message claims it"
            self._instruments.log(message, alarm=Cause.OVERDUE, **payment.log_fields, state=payment.state)

    # ------------------------------------------------------------ Stripe ─► rows

    def _retry_failed(self, *, reserve: float) -> None:
        """Retry the events that failed before."""
        for failed in self._checkpoint.failed:
            if not self._has_time(reserve):
                break
            others = tuple(each for each in self._checkpoint.failed if each != failed)
            event: StripeEvent | None = None
            try:
                event = retrieve_event(self._client, failed.event_id)
                error = self._try_to_apply(event)[0] if event else None
            except Exception as not_retrieved:  # It does not block the others.
                error = not_retrieved
            if error is None:
                self._advance(failed=others)
            elif self._instruments.now() - failed.failed_at < FAILED_SECONDS or cause_of(error) is None:
                # An outage, however long, is not the event's fault.
                self._report_failed(failed, event, error)
                self._advance(failed=(*others, failed))
            else:
                self._instruments.count(Alarm(Cause.RECONCILE_BEHIND))
                message = "event abandoned: find it at Stripe by its id"
                self._report_failed(failed, event, error, "EventAbandoned", message)
                self._advance(failed=others)

    def _apply_events(self, received: Received) -> None:
        """Apply Stripe's next events; one that fails is kept, and retried by later runs."""
        read_until = self._instruments.now() - FINALIZING_SECONDS
        listed_and_received = min(self._checkpoint.since + FINALIZING_SECONDS, received.newest_event_at)
        if listed_and_received > self._instruments.now() - LISTED_AFTER_SECONDS:
            read_until = self._checkpoint.since  # A reading that was interrupted is finished all the same.
        while self._has_time():
            if self._checkpoint.since == self._checkpoint.until:
                self._advance(until=max(self._checkpoint.since, read_until))
            since, until = self._checkpoint.since, self._checkpoint.until
            if since == until:
                break
            try:
                after = self._checkpoint.after_event
                page = list_events(self._client, since=since - REREAD_SECONDS, until=until, after=after)
            except stripe.StripeError as error:
                self._report("ReconcileInterrupted", "events not listed: the next run continues", error)
                break
            for events in batched(page.events, IN_PARALLEL, strict=False):
                if not self._has_time() or len(self._checkpoint.failed) >= FAILED_MAX:
                    self._write()
                    return
                self._apply_in_parallel(events)
            self._advance(since=since if page.next else until, after_event=page.next)
            self._write()
        self._write()

    def _apply_in_parallel(self, events: tuple[StripeEvent, ...]) -> None:
        known = {each.event_id for each in self._checkpoint.failed} | {
            each.event_id for each in self._checkpoint.alarmed
        }
        failed: list[FailedEvent] = []
        alarmed: list[AlarmedEvent] = []
        new = [event for event in events if event.event_id not in known]
        for event, (error, has_alarmed) in zip(new, self._parallel(self._try_to_apply, new), strict=True):
            if error is not None:
                failed.append(FailedEvent(event.event_id, self._instruments.now()))
                self._report_failed(failed[-1], event, error)
            elif has_alarmed:
                alarmed.append(AlarmedEvent(event.event_id, event.created))
        # Distinct times: the same events are read again.
        newest = sorted({*self._checkpoint.newest_events, *(event.created for event in events)})[-SILENT_EVENTS:]
        read_again_since = self._checkpoint.since - REREAD_SECONDS
        kept = [each for each in (*self._checkpoint.alarmed, *alarmed) if each.created >= read_again_since]
        self._advance(
            failed=(*self._checkpoint.failed, *failed),
            alarmed=tuple(kept[-ALARMED_MAX:]),
            newest_events=tuple(newest),
            after_event=events[-1].event_id,
        )

    def _try_to_apply(self, event: StripeEvent) -> tuple[Exception | None, bool]:
        """Why the event could not be applied; and whether it has raised an alarm."""
        tools, alarms = self._make_tools().noting_alarms()
        try:
            sync(event, tools)
        except Exception as error:  # An event that fails does not block the others.
            return error, bool(alarms)
        return None, bool(alarms)

    # ------------------------------------------------------------ reports

    def _report_silence(self, received: Received) -> None:
        expected_since = max(received.newest_event_at + RECEIVED_STEP_SECONDS, self._checkpoint.webhooks_expected_since)
        missed = [each for each in self._checkpoint.newest_events if each > expected_since]
        if len(missed) >= SILENT_EVENTS:
            self._instruments.count("WebhookSilent")
            message = "Stripe has events that never came here: is there an endpoint, with our signing secret?"
            self._instruments.log(message, alarm=Cause.WEBHOOK_SILENT, received_until=received.newest_event_at)

    def _report_lag(self) -> None:
        now = self._instruments.now()
        rows_seconds, events_seconds = now - self._checkpoint.round_completed_at, now - self._checkpoint.since
        self._gauge("RowsBehindSeconds", rows_seconds)
        self._gauge("EventsBehindSeconds", events_seconds)
        lag: dict[str, Any] = {"rows_behind_seconds": rows_seconds, "events_behind_seconds": events_seconds}
        if max(lag.values()) > ROUND_OVERDUE_SECONDS:
            self._instruments.count("ReconcileOverdue")
            message = "reconciliation is behind: no round was completed for an hour"
            self._instruments.log(message, alarm=Cause.RECONCILE_BEHIND, **lag)
        self._instruments.log("reconciled", **lag, failed_events=len(self._checkpoint.failed))

    def _report_failed(
        self,
        failed: FailedEvent,
        event: StripeEvent | None,
        error: Exception,
        metric: str = "ReconcileFailed",
        message: str = "event not applied: the next run retries",
    ) -> None:
        about = {"order_id": event.order_id, "payment_intent_id": event.payment_intent_id} if event else {}
        self._report(metric, message, error, event_id=failed.event_id, failed_at=failed.failed_at, **about)

    def _report(self, metric: str, message: str, error: Exception, **about: object) -> None:
        self._instruments.count(metric)
        cause = cause_of(error)
        if cause:
            self._instruments.count(Alarm(cause))
        unexpected = error if cause is Cause.UNEXPECTED_ERROR else None
        details = {**about, "error": logged_as(error)} | ({"cause": cause} if cause else {})
        self._instruments.logger.warning(message, extra=details, exc_info=unexpected)

    def _has_time(self, reserve: float = 0) -> bool:
        return self._seconds_left() - reserve >= STEP_SECONDS
