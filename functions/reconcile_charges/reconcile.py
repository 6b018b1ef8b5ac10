"""The ledger held against Stripe, in both directions, a bounded piece at a time.

Stripe ─► ledger    each PaymentIntent of ours that an event told of since the last run
ledger ─► Stripe    the next rows of the table, round and round

What is found is decided by `compare` in protocol.py, and settled by the same rules as a delivery. Nothing is ever
charged here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import stripe
from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.payments.ledger import LeaseLost, Ledger
from onecharge.payments.looking import look
from onecharge.payments.protocol import OUTCOMES, ChargeRow, Compared, FoundIntent, Reply, Settle, compare, reply_for
from onecharge.payments.stripe_gateway import LookInconclusive, StripeGateway
from onecharge.states import ChargeState
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
"""Rows that were settled longer ago are not held against Stripe any more."""

EVENT_PAGES_MAX = 60
"""Of 100 events: 6,000 in a run, one every five minutes, keep up with 20 charges a second."""

ROWS_MAX = 200
_ROWS_A_PAGE = 50

_ALARMS = (Compared.UNKNOWN_CHARGE, Compared.DIFFERS)


@dataclass(frozen=True)
class ReconcileCharges:
    """One run; `clock` gives the time in epoch seconds, `has_time` says whether there is enough for one step more."""

    ledger: Ledger
    gateway: StripeGateway
    progress: ProgressStore
    lease_seconds: int
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
                self._told(told.order_id, told.attempt, told.intent)
                progress = replace(progress, after_event=told.event_id)
            since = progress.since if page.next else progress.until
            progress = self.progress.write(replace(progress, since=since, after_event=page.next))
        return progress

    def _told(self, order_id: str, attempt: int, then: FoundIntent) -> None:
        row = self.ledger.read(order_id, attempt)
        if compare(row, then, self._now()) is Compared.AGREES:
            return
        # An event is a snapshot: what holds is what the PaymentIntent is now.
        intent = self.gateway.retrieve(then.payment_intent_id)
        if intent is not None:
            self._bring_together(row, intent, order_id=order_id, attempt=attempt)

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
        if row.state is ChargeState.CLAIMED:
            if now - row.lease_expires_at >= ABANDONED_SECONDS and not self._look(row):
                self._report(row, "AbandonedClaim", "no worker and no message is left, and Stripe shows no charge")
        elif row.payment_intent_id and (row.settled_at or 0) > now - ROWS_HELD_FOR_SECONDS:
            intent = self.gateway.retrieve(row.payment_intent_id)
            if intent is None:
                self._report(row, "RowUnknownToStripe", "Stripe knows no such PaymentIntent")
            else:
                self._bring_together(row, intent, order_id=row.request.order_id, attempt=row.request.attempt)

    # ------------------------------------------------------------ both

    def _bring_together(self, row: ChargeRow | None, intent: FoundIntent, *, order_id: str, attempt: int) -> None:
        compared = compare(row, intent, self._now())
        match compared:
            case Compared.UNKNOWN_CHARGE:
                self.count("ChargeUnknownToLedger")
                self.count("Alarm")
                self.logger.error(compared, extra={"order_id": order_id, "attempt": attempt, **_about(intent)})
            case Compared.DIFFERS if row:
                self._report(row, "LedgerDiffersFromStripe", compared, **_about(intent))
            case Compared.ABANDONED if row:
                self._look(row)
            case Compared.PAID if row:
                self._decide(row, reply_for(row.request, intent))
            case Compared.FAILED if row:
                # Its customer's page could still confirm it: only a canceled one makes room for another attempt.
                self._decide(row, reply_for(row.request, self.gateway.cancel(intent.payment_intent_id)))

    def _decide(self, row: ChargeRow, reply: Reply) -> None:
        """The customer's bank has said yes or no."""
        state = OUTCOMES[reply.answer].state
        if state and self.ledger.decide(row, state, code=reply.code, now=self._now()):
            self._settled(row, state, reply.payment_intent_id)

    def _look(self, row: ChargeRow) -> bool:
        """What a delivery does first with a row whose worker is gone, and no more: settled, if Stripe shows it."""
        ours = self.ledger.take_over(row, now=self._now(), lease_seconds=self.lease_seconds)
        if ours is None:
            return True
        decision = look(self.gateway, ours, self._now)
        state = OUTCOMES[decision.reply.answer].state if isinstance(decision, Settle) else None
        try:
            if not isinstance(decision, Settle) or state is None:
                self.ledger.hand_back(ours, look_first=False, now=self._now())
                return False
            reply = decision.reply
            self.ledger.settle(
                ours,
                state,
                payment_intent_id=reply.payment_intent_id,
                code=reply.code,
                now=self._now(),
                client_secret=reply.client_secret,
            )
        except LeaseLost:
            return True
        self._settled(ours, state, reply.payment_intent_id)
        return True

    # ------------------------------------------------------------ what is said of it

    def _settled(self, row: ChargeRow, state: ChargeState, payment_intent_id: str | None) -> None:
        self.count(f"Reconciled.{state}")
        if state is ChargeState.NEEDS_REVIEW:
            self.count("Alarm")
        self.logger.info(
            "settled as Stripe shows it", extra={**_of(row), "state": state, "payment_intent_id": payment_intent_id}
        )

    def _report(self, row: ChargeRow, metric: str, message: str, **details: str) -> None:
        self.count(metric)
        self.count("Alarm")
        self.logger.error(message, extra={**_of(row), "state": row.state, **details})

    def _now(self) -> int:
        return int(self.clock())


def _of(row: ChargeRow) -> dict[str, object]:
    return {
        "order_id": row.request.order_id,
        "attempt": row.request.attempt,
        "correlation_id": row.correlation_id,
    }


def _about(intent: FoundIntent) -> dict[str, str]:
    return {"payment_intent_id": intent.payment_intent_id, "status_at_stripe": intent.status}
