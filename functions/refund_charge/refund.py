"""One delivery of one refund: claim, refund or look first, settle. The decisions are in protocol.py."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import stripe
from aws_lambda_powertools import Logger

from onecharge.deliveries import BackOff, Disposition, Done, PoisonMessage, RetryAfter
from onecharge.events import RefundRequestedEvent
from onecharge.payments.leases import HeldByAnother, LeaseLost
from onecharge.payments.ledger import Ledger
from onecharge.payments.protocol import LookAgain, OpenNewKey, Step, Then, next_step
from onecharge.payments.stripe_gateway import LookInconclusive
from onecharge.payments.time_bounds import CLOCK_DIFFERENCE_SECONDS
from onecharge.states import PaymentState
from refund_charge.ledger import AlreadySettled, Claimed, RefundLedger
from refund_charge.protocol import OUTCOMES, FrozenRefund, RefundReply, RefundRow, Settle, after_look
from refund_charge.stripe_refunds import StripeRefunds


@dataclass(frozen=True)
class RefundCharge:
    """Refunds charges through a ledger and Stripe; `clock` gives the time in epoch seconds."""

    charges: Ledger
    ledger: RefundLedger
    refunds: StripeRefunds
    lease_seconds: int
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, event: RefundRequestedEvent) -> Disposition:
        """Handle one delivery; however many there are of a refund, together they make it once."""
        now = self._now()
        requested_at = int(event.data.requested_at.timestamp())
        if requested_at > now + CLOCK_DIFFERENCE_SECONDS:
            # The freshness rule counts from this time: a time yet to come would switch it off.
            raise PoisonMessage("data.requested_at: in the future")
        payment_intent_id = self._charged(event)
        if payment_intent_id is None:
            self._log(event, "waits for its charge")
            return BackOff()
        claim = self.ledger.claim(
            FrozenRefund.of(event.data, payment_intent_id),
            correlation_id=event.correlationid,
            requested_at=min(requested_at, now),
            now=now,
            lease_seconds=self.lease_seconds,
        )
        match claim:
            case Claimed(row):
                self._warn_if_changed(event, row)
                return self._refund(event, row)
            case HeldByAnother(lease_expires_at):
                # Not acknowledged: should the holder crash, this delivery is the one that refunds.
                wait_seconds = max(1, lease_expires_at - now + 1)
                self.count("DuplicateWaiting")
                self._log(event, "duplicate waits for the lease", wait_seconds=wait_seconds)
                return RetryAfter(wait_seconds)
            case AlreadySettled(row):
                self._warn_if_changed(event, row)
                self.count("DuplicateCollapsed")
                self._log(event, "duplicate of a settled refund", state=row.state)
                return Done()
            case _:
                assert_never(claim)

    def _charged(self, event: RefundRequestedEvent) -> str | None:
        """The PaymentIntent that paid the order; None if the ledger does not say that one did."""
        charge = self.charges.read(event.data.order_id, event.data.attempt)
        if charge is None or charge.state is not PaymentState.SUCCEEDED:
            return None
        if event.data.currency != charge.request.currency or event.data.amount_minor > charge.request.amount_minor:
            raise PoisonMessage("data.amount_minor: more than was charged, or other money")
        return charge.payment_intent_id

    def _refund(self, event: RefundRequestedEvent, row: RefundRow) -> Disposition:
        try:
            if next_step(row, self._now()) is Step.LOOK:
                return self._look_first(event, row)
            return self._settle(event, row, self.refunds.refund(row.request, row.idempotency_key))
        except LeaseLost:
            # Whoever holds the row now sends the same key, and settles what Stripe answers.
            self.count("LeaseLost")
            self._log(event, "lease lost, nothing written")
            return BackOff()

    def _look_first(self, event: RefundRequestedEvent, row: RefundRow) -> Disposition:
        # What is absent was so when the look began; it may have taken long.
        looked_at = self._now()
        try:
            decision = after_look(row, self.refunds.look(row.request), looked_at)
        except (LookInconclusive, stripe.StripeError) as error:
            # These do not pass by themselves: somebody has to see them.
            alarm = isinstance(error, LookInconclusive | stripe.AuthenticationError | stripe.PermissionError)
            return self._try_again(event, row, "look failed", error=type(error).__name__, alarm=alarm)
        match decision:
            case Settle(reply):
                return self._settle(event, row, reply)
            case OpenNewKey():
                fresh = self.ledger.open_new_key(row, now=self._now())
                return self._settle(event, fresh, self.refunds.refund(fresh.request, fresh.idempotency_key))
            case LookAgain():
                return self._try_again(event, row, "nothing found at Stripe yet")
            case _:
                assert_never(decision)

    def _settle(self, event: RefundRequestedEvent, row: RefundRow, reply: RefundReply) -> Disposition:
        outcome = OUTCOMES[reply.answer]
        if outcome.state is None:
            self.ledger.hand_back(row, look_first=outcome.then is Then.LOOK_FIRST, now=self._now())
        else:
            self.ledger.settle(
                row, outcome.state, stripe_refund_id=reply.stripe_refund_id, code=reply.code, now=self._now()
            )
        self.count(f"Refund.{outcome.state or 'UNKNOWN'}")
        if outcome.alarm:
            self.count("Alarm")
        self._log(
            event,
            "refund settled" if outcome.state else "refund outcome unknown",
            alarm=outcome.alarm,
            state=outcome.state,
            answer=reply.answer,
            code=reply.code,
            stripe_refund_id=reply.stripe_refund_id,
        )
        return Done() if outcome.then is Then.SETTLE else BackOff()

    def _try_again(
        self, event: RefundRequestedEvent, row: RefundRow, why: str, *, error: str | None = None, alarm: bool = False
    ) -> Disposition:
        self.ledger.hand_back(row, look_first=True, now=self._now())
        if alarm:
            self.count("Alarm")
        self._log(event, why, alarm=alarm, error=error)
        return BackOff()

    def _now(self) -> int:
        return int(self.clock())

    def _warn_if_changed(self, event: RefundRequestedEvent, row: RefundRow) -> None:
        if (event.data.amount_minor, event.data.currency) != (row.request.amount_minor, row.request.currency):
            self.count("Alarm")
            self._log(event, "message differs from the frozen request, which holds", alarm=True)

    def _log(self, event: RefundRequestedEvent, message: str, *, alarm: bool = False, **details: object) -> None:
        write = self.logger.error if alarm else self.logger.info
        write(
            message,
            stacklevel=3,  # The line names the place that had something to say.
            extra={
                "order_id": event.data.order_id,
                "refund_id": event.data.refund_id,
                "attempt": event.data.attempt,
                "correlation_id": event.correlationid,
                **{name: value for name, value in details.items() if value is not None},
            },
        )
