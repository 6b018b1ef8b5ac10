"""One delivery of one order: claim the payment, work on it, say what becomes of the message."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from aws_lambda_powertools import Logger

from onecharge.contract.cancellations import CancelRequestedEvent
from onecharge.contract.events import OrderPlacedEvent
from onecharge.contract.questions import Cancellation
from onecharge.payments.charges.cancel import CancelPayment
from onecharge.payments.charges.protocol import FrozenRequest, Payment
from onecharge.payments.charges.store import AlreadyFinal, Claimed, PaymentStore, Superseded
from onecharge.payments.charges.worker import PaymentWorker, Unfinished
from onecharge.payments.leases import HeldByAnother, new_lease_owner
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS, TimeBounds
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage, RetryAfter

REEMIT_AFTER_SECONDS = 15 * 60
"""Nearly all duplicates come sooner, and cost nothing but the refused claim. One that comes so late may be the order
service asking again, for an order that still waits: the outcome's own stream record may be lost."""


@dataclass(frozen=True)
class ChargeOrder:
    """Charges orders through a store and a worker; `clock` gives the time in epoch seconds."""

    store: PaymentStore
    worker: PaymentWorker
    bounds: TimeBounds
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, event: OrderPlacedEvent | CancelRequestedEvent) -> Disposition:
        """Handle one delivery; however many there are of an order, together they charge it once."""
        request = FrozenRequest.of(event.data)
        if request.placed_at > self._now() + FUTURE_MAX_SECONDS:
            # The lookup counts from this time: a time yet to come would switch it off.
            raise PoisonMessage("data.placed_at: in the future")
        if isinstance(event, CancelRequestedEvent):
            return self._cancel(event)
        return self._charge(event, request)

    def _charge(self, event: OrderPlacedEvent, request: FrozenRequest) -> Disposition:
        started_at = self.clock()
        claim = self.store.claim(
            request,
            attempt=event.data.attempt,
            payment_method=event.data.payment_method,
            correlation_id=event.correlationid,
            owner=new_lease_owner(),
            now=self._now(),
            lease_seconds=self.bounds.lease_seconds,
        )
        match claim:
            case Claimed(payment):
                self._warn_if_changed(event, request, payment)
                result = self.worker.work(payment, deadline=self.bounds.deadline(started_at))
                return BackOff() if isinstance(result, Unfinished) else Done()
            case HeldByAnother(lease_expires_at):
                # Not acknowledged: should the holder crash, this delivery is the one that charges.
                wait_seconds = min(max(1, lease_expires_at - self._now() + 1), self.bounds.lease_seconds)
                self.count("DuplicateWaiting")
                self._log(event, "duplicate waits for the lease", wait_seconds=wait_seconds)
                return RetryAfter(wait_seconds)
            case AlreadyFinal(payment):
                self._warn_if_changed(event, request, payment)
                return self._duplicate(event, payment)
            case Superseded(payment):
                self.count("DuplicateIgnored")
                self._log(event, "superseded by a later attempt", present_attempt=payment.attempt)
                return Done()
            case _:
                assert_never(claim)

    def _duplicate(self, event: OrderPlacedEvent, payment: Payment) -> Disposition:
        self._reemit_if_late(payment)
        self.count("DuplicateIgnored")
        self._log(event, "duplicate of a finalized payment", state=payment.state)
        return Done()

    def _cancel(self, event: CancelRequestedEvent) -> Disposition:
        """The order service's own message, for a cancellation that could not be finished while the customer waited."""
        cancel = CancelPayment(
            store=self.store,
            worker=self.worker,
            bounds=self.bounds,
            clock=self.clock,
            logger=self.logger,
            count=self.count,
        )
        cancellation, payment = cancel(event.data, correlation_id=event.correlationid)
        if cancellation is Cancellation.CANCELING:
            return BackOff()
        self._reemit_if_late(payment)
        return Done()

    def _reemit_if_late(self, payment: Payment) -> None:
        emitted_at = max(payment.finalized_at or 0, payment.last_emitted_at or 0)
        if self._now() - emitted_at >= REEMIT_AFTER_SECONDS and self.store.reemit_outcome(payment, now=self._now()):
            self.count("OutcomeReemitted")

    def _now(self) -> int:
        return int(self.clock())

    def _warn_if_changed(self, event: OrderPlacedEvent, request: FrozenRequest, payment: Payment) -> None:
        same_attempt = payment.attempt == event.data.attempt
        other_method = same_attempt and payment.payment_method not in ("", event.data.payment_method)
        if request != payment.request or other_method:
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
