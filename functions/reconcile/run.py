"""One run of the reconciler, which finds what no webhook and no message has told.

rows ─► Stripe    each unfinished row: cancels 3-D Secure that was not finished in time, reports what is held
Stripe ─► rows    each event since the checkpoint, minus three hours

The checkpoint is one time. It advances once every event before it is applied; an event that fails is read again by the
next run. What else waits is published again to the worker (republish).
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from aws_lambda_powertools import Logger

from onecharge.contract.states import PaymentState
from onecharge.payments.apply import apply
from onecharge.payments.charge_rules import is_held
from onecharge.payments.payments_table import WriteRefused
from onecharge.payments.stripe_events import (
    RECEIVED_STEP_SECONDS,
    Received,
    ReconcileCheckpoint,
    StripeEvent,
    list_events,
)
from onecharge.payments.sync import OUTAGES, cause_of, sync_row
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.checkpoints import CheckpointStore, ConcurrentRun
from onecharge.runtime.dynamodb import ALL_SHARDS
from onecharge.runtime.metrics import Alarm, Counts
from onecharge.runtime.paging import paged
from onecharge.runtime.parallel import Parallel
from onecharge.runtime.secrets import logged_as

IN_PARALLEL = 5
"""Rows or events: 17 to 25 requests a second, and Stripe allows 25 of one kind by default."""

STEP_SECONDS = 20
"""How long a row, an event or a page takes at most: with less time left none is begun."""

EVENTS_KEPT_SECONDS = 29 * 24 * 3600
"""Stripe keeps events for 30 days (Stripe documentation, "List all events"): a run reads this far back at most."""

REREAD_SECONDS = 3 * 3600
"""Each reading begins this much before the checkpoint: clocks differ, and Stripe may list an event late."""

WINDOW_SECONDS = 3 * 3600
"""After an outage events are read in windows of this length, so that each run advances."""

FINALIZING_SECONDS = 300
"""Events are read once they are this old: by then the charge's own worker has finalized the row, or never will; and so
has each sync that asked Stripe before the event, and writes after a webhook has found that the row shows it."""

LISTED_AFTER_SECONDS = 30 * 60
"""While webhooks arrive, events are listed this often, since Stripe counts reads (Stripe documentation, "Rate limits").
Once none has arrived for so long, every run lists them."""

ROWS_SECONDS = 120
"""With less time left no row is visited: the rest of the run, which is half of it, is for events."""

SILENT_EVENTS = 3
"""With this many events at Stripe that are newer than all that were received, the webhook is silent."""

UNATTENDED_SECONDS = 1800
"""A row that was claimed longer ago is visited: a message backs off for 15 minutes at most."""

HELD_ALARM_SECONDS = 24 * 3600
"""How often a row that is held raises its alarm."""


@dataclass
class ReconcileRun:
    """One run, and how far it has come."""

    make_tools: Callable[[], Tools]
    """Makes tools for one row or event, with a deadline from now. Raises SecretUnavailable."""
    state: CheckpointStore[ReconcileCheckpoint]
    received: CheckpointStore[Received]
    seconds_left: Callable[[], float]
    """Of this invocation."""
    logger: Logger
    counts: Counts
    parallel: Parallel

    def run(self) -> None:
        """Visit the rows, then apply Stripe's events. An outage ends the run, and the next one continues."""
        try:
            tools = self.make_tools()
            self._visit_rows(tools)
            self._apply_events(tools)
        except ConcurrentRun:
            self.logger.info("concurrent run: the other one continues")
        except OUTAGES as error:
            self._report("interrupted: the next run continues", error)

    # ------------------------------------------------------------ rows ─► Stripe

    def _visit_rows(self, tools: Tools) -> None:
        claimed_before = tools.now() - UNATTENDED_SECONDS
        read = partial(tools.payments.unfinished, claimed_before=claimed_before, limit=IN_PARALLEL)
        for order_ids, _ in paged(ALL_SHARDS, read, has_time=lambda: self.seconds_left() > ROWS_SECONDS):
            self.parallel(self._visit_row, order_ids)

    def _visit_row(self, order_id: str) -> None:
        try:
            tools = self.make_tools()
            row, now = tools.payments.read(order_id), tools.now()
            if row is None:
                return
            if row.state is PaymentState.REQUIRES_ACTION and row.payment_intent_id:
                if now - (row.finalized_at or 0) >= tools.requires_action_seconds:
                    sync_row(order_id, row.payment_intent_id, tools)
            elif is_held(row, now) and now - (row.held_alarmed_at or 0) >= HELD_ALARM_SECONDS:
                tools.alarm(Cause.HELD, "order held: an operator has to release it", row, None)
                with suppress(WriteRefused):  # It is visited again, as it is then.
                    tools.payments.write_if_unchanged(row, {"held_alarmed_at": now}, now=now)
        except Exception as error:  # A row that fails does not block the others.
            self._report("row not reconciled: the next run tries again", error, order_id=order_id)

    # ------------------------------------------------------------ Stripe ─► rows

    def _apply_events(self, tools: Tools) -> None:
        now = tools.now()
        end = now - FINALIZING_SECONDS
        checkpoint = self.state.read() or self.state.write(ReconcileCheckpoint(since=end))
        # Webhooks are expected from the first run on: what happened in this account before is no silence.
        received = self.received.read() or self.received.write(Received(newest_event_at=now))
        since, newest = max(checkpoint.since, now - EVENTS_KEPT_SECONDS), set[int]()
        is_due = min(since + FINALIZING_SECONDS, received.newest_event_at) <= now - LISTED_AFTER_SECONDS
        while is_due and since < end:
            until = min(since + WINDOW_SECONDS, end)
            if not self._apply_window(since - REREAD_SECONDS, until, newest, tools):
                break
            checkpoint, since = self.state.write(replace(checkpoint, since=until)), until
        self._report_silence(newest, received, tools)
        behind_seconds = now - since
        self.counts.gauge("EventsBehindSeconds", behind_seconds)
        tools.log("reconciled", events_behind_seconds=behind_seconds)

    def _apply_window(self, since: int, until: int, newest: set[int], tools: Tools) -> bool:
        """Apply all events of this time; returns whether all of them are applied."""
        is_complete, after = True, None
        while True:
            if self.seconds_left() <= STEP_SECONDS:
                return False
            events, after = list_events(tools.stripe.client, since=since, until=until, after=after)
            newest.update(event.created for event in events)
            is_complete &= all(self.parallel(self._apply, events))
            if after is None:
                return is_complete

    def _apply(self, event: StripeEvent) -> bool:
        try:
            apply(event, self.make_tools())
        except Exception as error:  # An event that fails does not block the others.
            about = {"event_id": event.event_id, "order_id": event.order_id}
            message = "event not applied: the next run tries again"
            self._report(message, error, **about, payment_intent_id=event.payment_intent_id)
            return False
        return True

    # ------------------------------------------------------------ reports

    def _report_silence(self, newest: set[int], received: Received, tools: Tools) -> None:
        missed = [each for each in newest if each > received.newest_event_at + RECEIVED_STEP_SECONDS]
        if len(missed) >= SILENT_EVENTS:
            message = "Stripe has events that never came here: is there an endpoint, with our signing secret?"
            tools.log(message, alarm=Cause.STRIPE_ACCOUNT, received_until=received.newest_event_at)

    def _report(self, message: str, error: Exception, **about: object) -> None:
        cause = cause_of(error)
        self.counts("ReconcileFailed")
        if cause:
            self.counts(Alarm(cause))
        details = {**about, "error": logged_as(error), "why": str(error), "cause": cause}
        unexpected = error if cause is Cause.UNEXPECTED_ERROR else None
        given = {name: value for name, value in details.items() if value is not None}
        self.logger.warning(message, extra=given, exc_info=unexpected)
