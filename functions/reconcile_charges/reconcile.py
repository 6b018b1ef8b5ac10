"""The ledger held against Stripe, in both directions, a bounded piece at a time.

Stripe ─► ledger    each PaymentIntent of ours that an event told of since the last run
ledger ─► Stripe    the next rows of the table, round and round

What is found is settled by the layer's Settler, as when a webhook tells of it; this module knows where to look next.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import stripe
from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.payments.ledger import Ledger
from onecharge.payments.protocol import ChargeRow
from onecharge.payments.settling import Settler
from onecharge.payments.stripe_gateway import LookInconclusive, StripeGateway
from onecharge.states import PaymentState
from reconcile_charges.progress import AnotherRun, Progress, ProgressStore

FIRST_RUN_SECONDS = 24 * 3600
"""How far back the very first run reads Stripe's events."""

EVENTS_KEPT_SECONDS = 29 * 24 * 3600
"""Stripe keeps events for 30 days (Stripe documentation, "List all events"): a run that comes later starts here."""

SETTLING_SECONDS = 300
"""Events are read once they are this old: by then whoever made the charge has settled it, or never will."""

ABANDONED_SECONDS = 3600
"""A row whose lease expired this long ago has no message left that comes back for it: backoff is capped far below."""

ROWS_HELD_FOR_SECONDS = 30 * 24 * 3600
"""Rows that were settled longer ago are not held against Stripe any more. One that waits for its customer always is:
what was missed of it in an outage of a month, no event tells again."""

EVENT_PAGES_MAX = 60
"""Of 100 events: 6,000 in a run, one every five minutes, keep up with 20 charges a second."""

ROWS_MAX = 200
_ROWS_A_PAGE = 50


@dataclass(frozen=True)
class ReconcileCharges:
    """One run; `clock` gives the time in epoch seconds, `has_time` says whether there is enough for one step more."""

    ledger: Ledger
    gateway: StripeGateway
    settler: Settler
    progress: ProgressStore
    clock: Callable[[], float]
    has_time: Callable[[], bool]
    logger: Logger
    count: Callable[[str], None]

    def __call__(self) -> None:
        """Go on where the last run stopped. Whatever goes wrong is left to the next run, from the last place kept."""
        try:
            now = self._now()
            progress = self.progress.read() or Progress(since=now - FIRST_RUN_SECONDS, until=now - FIRST_RUN_SECONDS)
            if progress.since < now - EVENTS_KEPT_SECONDS:
                oldest = now - EVENTS_KEPT_SECONDS
                progress = replace(progress, since=oldest, until=oldest, after_event=None)
            progress = self._rows(self._events(progress))
            self.logger.info("reconciled", extra={"events_until": progress.since, "row": progress.after_order_id})
        except AnotherRun:
            self.logger.info("another run goes on")
        except (stripe.StripeError, BotoCoreError, ClientError, LookInconclusive) as error:
            self.count("ReconcileInterrupted")
            if isinstance(error, stripe.AuthenticationError | stripe.PermissionError):
                self.count("Alarm")
            self.logger.warning("interrupted: the next run goes on", extra={"error": type(error).__name__})

    # ------------------------------------------------------------ Stripe ─► ledger

    def _events(self, progress: Progress) -> Progress:
        settled_until = self._now() - SETTLING_SECONDS
        for _ in range(EVENT_PAGES_MAX):
            if progress.since == progress.until:
                progress = replace(progress, until=max(progress.since, settled_until))
            if progress.since == progress.until:
                break
            page = self.gateway.told(since=progress.since, until=progress.until, after=progress.after_event)
            for told in page.told:
                if not self.has_time():
                    return self.progress.write(progress)
                self.settler.told(told)
                progress = replace(progress, after_event=told.event_id)
            since = progress.since if page.next else progress.until
            progress = self.progress.write(replace(progress, since=since, after_event=page.next))
        return progress

    # ------------------------------------------------------------ ledger ─► Stripe

    def _rows(self, progress: Progress) -> Progress:
        for _ in range(ROWS_MAX // _ROWS_A_PAGE):
            after = (progress.after_order_id, progress.after_attempt)
            rows, last = self.ledger.page(
                after=None if after[0] is None or after[1] is None else (after[0], after[1]), limit=_ROWS_A_PAGE
            )
            for row in rows:
                if not self.has_time():
                    return self.progress.write(progress)
                self._row(row)
                progress = replace(progress, after_order_id=row.request.order_id, after_attempt=row.request.attempt)
            order_id, attempt = last or (None, None)
            progress = self.progress.write(replace(progress, after_order_id=order_id, after_attempt=attempt))
            if last is None:
                break
        return progress

    def _row(self, row: ChargeRow) -> None:
        now = self._now()
        if row.state is PaymentState.CLAIMED:
            if now - row.lease_expires_at >= ABANDONED_SECONDS and not self.settler.look(row):
                self.settler.report(
                    row, "AbandonedClaim", "no worker and no message is left, and Stripe shows no charge"
                )
        elif row.payment_intent_id and (
            row.state is PaymentState.REQUIRES_ACTION or (row.settled_at or 0) > now - ROWS_HELD_FOR_SECONDS
        ):
            intent = self.gateway.retrieve(row.payment_intent_id)
            if intent is None:
                self.settler.report(row, "RowUnknownToStripe", "Stripe knows no such PaymentIntent")
            else:
                self.settler.bring_together(row, intent, order_id=row.request.order_id, attempt=row.request.attempt)

    def _now(self) -> int:
        return int(self.clock())
