"""One delivery of one order: claim the payment, then work on it, or ignore the duplicate (payments/delivery.py).

OrderPlaced ──────► claim the attempt ─► PaymentWorker ─► Done, or BackOff
CancelRequested ──► CancelPayment ─────────────────────► Done, or BackOff until Stripe has decided
"""

from dataclasses import dataclass

from onecharge.contract.cancellations import CancelRequestedEvent
from onecharge.contract.events import OrderPlacedEvent
from onecharge.contract.questions import Cancellation
from onecharge.payments.charges.cancel import CancelPayment
from onecharge.payments.charges.protocol import Finalize, FrozenRequest, Payment
from onecharge.payments.charges.worker import PaymentWorker
from onecharge.payments.delivery import DeliveryHandler
from onecharge.payments.leases import new_lease_owner
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage


@dataclass(frozen=True)
class ChargeOrder(DeliveryHandler[Payment, Finalize, OrderPlacedEvent]):
    """Charges orders: however many deliveries an order has, together they charge it once."""

    worker: PaymentWorker

    def __call__(self, event: OrderPlacedEvent | CancelRequestedEvent) -> Disposition:
        """Handle one delivery. Raises PoisonMessage."""
        request = FrozenRequest.of(event.data)
        if request.placed_at > self.instruments.now() + FUTURE_MAX_SECONDS:
            # The order's age decides about the lookup: a time in the future would switch it off.
            raise PoisonMessage("data.placed_at: in the future")
        if isinstance(event, CancelRequestedEvent):
            return self._cancel(event)
        return self._charge(event, request)

    def _charge(self, event: OrderPlacedEvent, request: FrozenRequest) -> Disposition:
        started_at = self.instruments.clock()
        claim = self.worker.store.claim(
            request,
            attempt=event.data.attempt,
            payment_method=event.data.payment_method,
            correlation_id=event.correlationid,
            owner=new_lease_owner(),
            now=self.instruments.now(),
            lease_seconds=self.bounds.lease_seconds,
        )
        return self._after_claim(event, claim, started_at=started_at)

    def _differs(self, event: OrderPlacedEvent, row: Payment) -> bool:
        same_attempt = row.attempt == event.data.attempt
        other_method = same_attempt and row.payment_method not in ("", event.data.payment_method)
        return FrozenRequest.of(event.data) != row.request or other_method

    def _cancel(self, event: CancelRequestedEvent) -> Disposition:
        """The order service's message for a cancellation that was not finished while the customer waited."""
        cancel = CancelPayment(self.worker.store, self.worker, self.bounds, self.instruments)
        cancellation, payment = cancel(event.data, correlation_id=event.correlationid)
        if cancellation is Cancellation.CANCELING:
            return BackOff()
        self._reemit_if_late(payment)
        return Done()
