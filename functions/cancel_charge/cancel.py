"""Cancel one attempt before it is charged, or say that it is too late. A row that is CANCELED is never charged.

no row, or its lease has expired ─► claim it, look at Stripe ─┬─ nothing, for good ──────────► settle CANCELED
                                                              ├─ a charge, a decline ────────► settle as it says
                                                              └─ too early to tell ──────────► IN_PROGRESS
its lease is alive               ─► IN_PROGRESS
it waits for the customer        ─► cancel the PaymentIntent at Stripe, which decides the race
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

import stripe
from aws_lambda_powertools import Logger

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
    Reply,
    Settle,
    reply_for,
)
from onecharge.payments.stripe_gateway import LookInconclusive, StripeGateway
from onecharge.states import PaymentState


class Cancellation(StrEnum):
    """What the one who asks is told."""

    CANCELED = "CANCELED"
    """Nothing was charged by this attempt, and nothing will be."""
    PAID = "PAID"
    """The charge won."""
    IN_PROGRESS = "IN_PROGRESS"
    """It is being charged, or nobody knows yet whether it was: ask again."""
    NEEDS_REVIEW = "NEEDS_REVIEW"
    """A person has to look at it first."""


_ANSWER = {
    PaymentState.CANCELED: Cancellation.CANCELED,
    # There is nothing to charge any more, unless a new attempt is made: which the order service then allows no more.
    PaymentState.DECLINED: Cancellation.CANCELED,
    PaymentState.SUCCEEDED: Cancellation.PAID,
    PaymentState.NEEDS_REVIEW: Cancellation.NEEDS_REVIEW,
    PaymentState.CLAIMED: Cancellation.IN_PROGRESS,
    PaymentState.REQUIRES_ACTION: Cancellation.IN_PROGRESS,
}


@dataclass(frozen=True)
class CancelCharge:
    """Cancels attempts through a ledger and Stripe; `clock` gives the time in epoch seconds."""

    ledger: Ledger
    gateway: StripeGateway
    lease_seconds: int
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, event: OrderPlacedEvent) -> Cancellation:
        """Cancel what the event would charge. Asked again, it answers the same."""
        cancellation = _ANSWER[self._cancel(event)]
        self.count(f"Cancellation.{cancellation}")
        self.logger.info(
            "asked to cancel",
            extra={
                "order_id": event.data.order_id,
                "attempt": event.data.attempt,
                "correlation_id": event.correlationid,
                "cancellation": cancellation,
            },
        )
        return cancellation

    def _cancel(self, event: OrderPlacedEvent) -> PaymentState:
        now = self._now()
        claim = self.ledger.claim(
            FrozenRequest.of(event.data),
            correlation_id=event.correlationid,
            placed_at=min(int(event.data.placed_at.timestamp()), now),
            now=now,
            lease_seconds=self.lease_seconds,
        )
        match claim:
            case Claimed(row):
                return self._cancel_ours(row)
            case HeldByAnother():
                return PaymentState.CLAIMED
            case AlreadySettled(PaymentState.REQUIRES_ACTION):
                return self._cancel_waiting(event)
            case AlreadySettled(state):
                return state
            case NotDeclinedBefore():
                return PaymentState.CLAIMED
            case _:
                assert_never(claim)

    def _cancel_ours(self, row: ChargeRow) -> PaymentState:
        try:
            return self._after_look(row)
        except LeaseLost:
            return PaymentState.CLAIMED

    def _after_look(self, row: ChargeRow) -> PaymentState:
        try:
            # The first claim of a row is the one that made it: no worker has sent anything.
            decision = look(self.gateway, row, self._now, never_sent=row.fencing_token == 1)
            if isinstance(decision, Confirm):
                canceled = self.gateway.cancel(decision.payment_intent_id)
                decision = Settle(reply_for(row.request, canceled))
            if isinstance(decision, Settle) and (waiting := self._waits_for_its_customer(decision.reply)):
                decision = Settle(reply_for(row.request, self.gateway.cancel(waiting)))
        except (LookInconclusive, stripe.StripeError):
            self.ledger.hand_back(row, look_first=False, now=self._now())
            raise
        match decision:
            case Settle(reply):
                return self._settle(row, reply)
            case OpenNewKey():
                return self._settle_canceled(row)
            case LookAgain():
                # The key stays in use: one that is given up before Stripe has stored an answer under it could be used
                # again by a delivery that finds the row lost, beside the next generation.
                self.ledger.hand_back(row, look_first=False, now=self._now())
                return PaymentState.CLAIMED
            case _:
                raise AssertionError(decision)

    def _waits_for_its_customer(self, reply: Reply) -> str | None:
        waits = OUTCOMES[reply.answer].state is PaymentState.REQUIRES_ACTION
        return reply.payment_intent_id if waits else None

    def _settle(self, row: ChargeRow, reply: Reply) -> PaymentState:
        state = OUTCOMES[reply.answer].state
        if state is None:
            self.ledger.hand_back(row, look_first=False, now=self._now())
            return PaymentState.CLAIMED
        self.ledger.settle(row, state, payment_intent_id=reply.payment_intent_id, code=reply.code, now=self._now())
        return state

    def _settle_canceled(self, row: ChargeRow) -> PaymentState:
        self.ledger.settle(row, PaymentState.CANCELED, payment_intent_id=None, code=None, now=self._now())
        return PaymentState.CANCELED

    def _cancel_waiting(self, event: OrderPlacedEvent) -> PaymentState:
        """The customer may be confirming at this very moment: what Stripe then says is what holds."""
        row = self.ledger.read(event.data.order_id, event.data.attempt)
        if row is None or row.payment_intent_id is None or row.state is not PaymentState.REQUIRES_ACTION:
            return row.state if row else PaymentState.CLAIMED
        reply = reply_for(row.request, self.gateway.cancel(row.payment_intent_id))
        decided = OUTCOMES[reply.answer].state
        if decided is PaymentState.DECLINED:
            decided = PaymentState.CANCELED
        if decided not in (PaymentState.CANCELED, PaymentState.SUCCEEDED):
            return PaymentState.CLAIMED
        self.ledger.decide(row, decided, code=None, now=self._now())
        # Whoever decided first, the row says so.
        settled = self.ledger.read(event.data.order_id, event.data.attempt)
        return settled.state if settled else PaymentState.CLAIMED

    def _now(self) -> int:
        return int(self.clock())
