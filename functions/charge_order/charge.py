"""One delivery of one order: claim, charge or look first, settle. The decisions are in protocol.py."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import stripe
from aws_lambda_powertools import Logger

from onecharge.deliveries import BackOff, Disposition, Done, PoisonMessage, RetryAfter
from onecharge.events import OrderPlacedEvent
from onecharge.payments.leases import HeldByAnother, LeaseLost
from onecharge.payments.ledger import AlreadySettled, Claimed, Ledger, NotDeclinedBefore
from onecharge.payments.looking import look
from onecharge.payments.protocol import (
    OUTCOMES,
    ChargeRow,
    Confirm,
    FrozenRequest,
    LookAgain,
    OpenNewKey,
    Refusal,
    Reply,
    Settle,
    Step,
    Then,
    next_step,
    refusal_after,
)
from onecharge.payments.stripe_gateway import LookInconclusive, StripeGateway
from onecharge.payments.time_bounds import CLOCK_DIFFERENCE_SECONDS

TELL_AGAIN_SECONDS = 15 * 60
"""Nearly all duplicates come sooner, and cost nothing but the refused claim. One that comes so late may be the order
service asking again, for an order that is PENDING still."""


@dataclass(frozen=True)
class ChargeOrder:
    """Charges orders through a ledger and Stripe; `clock` gives the time in epoch seconds."""

    ledger: Ledger
    gateway: StripeGateway
    lease_seconds: int
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, event: OrderPlacedEvent) -> Disposition:
        """Handle one delivery; however many there are of an order, together they charge it once."""
        request = FrozenRequest.of(event.data)
        now = self._now()
        placed_at = int(event.data.placed_at.timestamp())
        if placed_at > now + CLOCK_DIFFERENCE_SECONDS:
            # The freshness rule counts from this time: a time yet to come would switch it off.
            raise PoisonMessage("data.placed_at: in the future")
        claim = self.ledger.claim(
            request,
            correlation_id=event.correlationid,
            placed_at=min(placed_at, now),
            now=now,
            lease_seconds=self.lease_seconds,
        )
        match claim:
            case Claimed(row):
                self._warn_if_changed(event, request, row.request.fingerprint)
                return self._charge(event, row)
            case HeldByAnother(lease_expires_at):
                # Not acknowledged: should the holder crash, this delivery is the one that charges.
                wait_seconds = max(1, lease_expires_at - now + 1)
                self.count("DuplicateWaiting")
                self._log(event, "duplicate waits for the lease", wait_seconds=wait_seconds)
                return RetryAfter(wait_seconds)
            case AlreadySettled(state, fingerprint, told_at):
                self._warn_if_changed(event, request, fingerprint)
                if now - told_at >= TELL_AGAIN_SECONDS:
                    # Whoever still asks may never have been told: the outcome's own stream record may be lost.
                    self.ledger.tell_again(request, state, now=now)
                    self.count("OutcomeToldAgain")
                self.count("DuplicateCollapsed")
                self._log(event, "duplicate of a settled charge", state=state)
                return Done()
            case NotDeclinedBefore(previous):
                if refusal_after(previous) is Refusal.NEVER:
                    raise PoisonMessage(f"attempt {request.attempt}: the one before it is {previous}")
                self._log(event, "waits for the attempt before it", state=previous)
                return BackOff()
            case _:
                assert_never(claim)

    def _charge(self, event: OrderPlacedEvent, row: ChargeRow) -> Disposition:
        try:
            if next_step(row, self._now()) is Step.LOOK:
                return self._look_first(event, row)
            return self._settle(event, row, self.gateway.charge(row.request, row.idempotency_key))
        except LeaseLost:
            # Whoever holds the row now sends the same key, and settles what Stripe answers.
            self.count("LeaseLost")
            self._log(event, "lease lost, nothing written")
            return BackOff()

    def _look_first(self, event: OrderPlacedEvent, row: ChargeRow) -> Disposition:
        try:
            decision = look(self.gateway, row, self._now)
        except (LookInconclusive, stripe.StripeError) as error:
            # These do not pass by themselves: somebody has to see them.
            alarm = isinstance(error, LookInconclusive | stripe.AuthenticationError | stripe.PermissionError)
            return self._try_again(event, row, "look failed", error=type(error).__name__, alarm=alarm)
        match decision:
            case Settle(reply):
                return self._settle(event, row, reply)
            case Confirm(payment_intent_id):
                return self._settle(event, row, self.gateway.confirm(row.request, payment_intent_id))
            case OpenNewKey():
                fresh = self.ledger.open_new_key(row, now=self._now())
                reply = self.gateway.charge(fresh.request, fresh.idempotency_key)
                return self._settle(event, fresh, reply)
            case LookAgain():
                return self._try_again(event, row, "nothing found at Stripe yet")
            case _:
                assert_never(decision)

    def _settle(self, event: OrderPlacedEvent, row: ChargeRow, reply: Reply) -> Disposition:
        outcome = OUTCOMES[reply.answer]
        if outcome.state is None:
            self.ledger.hand_back(row, look_first=outcome.then is Then.LOOK_FIRST, now=self._now())
        else:
            self.ledger.settle(
                row,
                outcome.state,
                payment_intent_id=reply.payment_intent_id,
                code=reply.code,
                now=self._now(),
                client_secret=reply.client_secret,
            )
        self.count(f"Charge.{outcome.state or 'UNKNOWN'}")
        if outcome.alarm:
            self.count("Alarm")
        self._log(
            event,
            "charge settled" if outcome.state else "charge outcome unknown",
            alarm=outcome.alarm,
            state=outcome.state,
            answer=reply.answer,
            code=reply.code,
            payment_intent_id=reply.payment_intent_id,
        )
        return Done() if outcome.then is Then.SETTLE else BackOff()

    def _try_again(
        self, event: OrderPlacedEvent, row: ChargeRow, why: str, *, error: str | None = None, alarm: bool = False
    ) -> Disposition:
        self.ledger.hand_back(row, look_first=True, now=self._now())
        if alarm:
            self.count("Alarm")
        self._log(event, why, alarm=alarm, error=error)
        return BackOff()

    def _now(self) -> int:
        return int(self.clock())

    def _warn_if_changed(self, event: OrderPlacedEvent, request: FrozenRequest, frozen_fingerprint: str) -> None:
        if request.fingerprint != frozen_fingerprint:
            self.count("Alarm")
            self._log(event, "message differs from the frozen request, which holds", alarm=True)

    def _log(self, event: OrderPlacedEvent, message: str, *, alarm: bool = False, **details: object) -> None:
        write = self.logger.error if alarm else self.logger.info
        write(
            message,
            stacklevel=3,  # The line names the place that had something to say.
            extra={
                "order_id": event.data.order_id,
                "attempt": event.data.attempt,
                "correlation_id": event.correlationid,
                **{name: value for name, value in details.items() if value is not None},
            },
        )
