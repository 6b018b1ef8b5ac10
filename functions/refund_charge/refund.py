"""One delivery of one refund: claim it, and work on it. The decisions are in onecharge.payments.refunds.protocol."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from aws_lambda_powertools import Logger

from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.charges.worker import Unfinished
from onecharge.payments.leases import HeldByAnother, new_lease_owner
from onecharge.payments.refunds.protocol import FrozenRefund, Refund
from onecharge.payments.refunds.store import RefundAlreadyFinal, RefundClaimed
from onecharge.payments.refunds.worker import RefundWorker
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS, TimeBounds
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage, RetryAfter

REEMIT_AFTER_SECONDS = 15 * 60
"""Nearly all duplicates come sooner, and cost nothing but the refused claim. One that comes so late may be the order
service asking again, for a refund that is PENDING still."""


@dataclass(frozen=True)
class RefundCharge:
    """Refunds payments through a store and Stripe; `clock` gives the time in epoch seconds."""

    payments: PaymentStore
    worker: RefundWorker
    bounds: TimeBounds
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, event: RefundRequestedEvent) -> Disposition:
        """Handle one delivery; however many there are of a refund, together they make it once."""
        started = self.clock()
        now = int(started)
        if int(event.data.requested_at.timestamp()) > now + FUTURE_MAX_SECONDS:
            raise PoisonMessage("data.requested_at: in the future")
        payment_intent_id = self._paid_with(event)
        if payment_intent_id is None:
            self._log(event, "waits for its payment")
            return BackOff()
        claim = self.worker.store.claim(
            FrozenRefund.of(event.data, payment_intent_id),
            correlation_id=event.correlationid,
            owner=new_lease_owner(),
            now=now,
            lease_seconds=self.bounds.lease_seconds,
        )
        match claim:
            case RefundClaimed(refund):
                self._warn_if_changed(event, refund)
                deadline = started + self.bounds.record_seconds - self.bounds.request_seconds
                worked = self.worker.work(refund, deadline=deadline)
                return BackOff() if isinstance(worked, Unfinished) else Done()
            case HeldByAnother(lease_expires_at):
                # Not acknowledged: should the owner crash, this delivery is the one that refunds.
                wait_seconds = max(1, lease_expires_at - now + 1)
                self.count("DuplicateWaiting")
                self._log(event, "duplicate waits for the lease", wait_seconds=wait_seconds)
                return RetryAfter(wait_seconds)
            case RefundAlreadyFinal(refund):
                self._warn_if_changed(event, refund)
                self._reemit_if_late(refund, now)
                self.count("DuplicateIgnored")
                self._log(event, "duplicate of a finalized refund", state=refund.state)
                return Done()
            case _:
                assert_never(claim)

    def _paid_with(self, event: RefundRequestedEvent) -> str | None:
        """The PaymentIntent that paid the order; None if the Payments table does not say that one did."""
        payment = self.payments.read(event.data.order_id)
        if payment is None or payment.state is not PaymentState.SUCCEEDED:
            return None
        if event.data.currency != payment.request.currency or event.data.amount_minor > payment.request.amount_minor:
            raise PoisonMessage("data.amount_minor: more than was charged, or other money")
        return payment.payment_intent_id

    def _reemit_if_late(self, refund: Refund, now: int) -> None:
        emitted_at = refund.last_emitted_at or refund.finalized_at or 0
        if now - emitted_at >= REEMIT_AFTER_SECONDS and self.worker.store.reemit_outcome(refund, now=now):
            # Whoever still asks may never have received it: the outcome's own stream record may be lost.
            self.count("OutcomeReemitted")

    def _warn_if_changed(self, event: RefundRequestedEvent, refund: Refund) -> None:
        if (event.data.amount_minor, event.data.currency) != (refund.request.amount_minor, refund.request.currency):
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
