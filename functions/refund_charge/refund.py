"""One delivery of one refund: claim it, then work on it, or ignore the duplicate (payments/delivery.py).

RefundRequested ─┬─► the order is paid ─► claim the refund ─► RefundWorker ─► Done, or BackOff
                 └─► not paid yet ──────► BackOff
"""

from dataclasses import dataclass

from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.delivery import DeliveryHandler
from onecharge.payments.leases import new_lease_owner
from onecharge.payments.refunds.protocol import Finalize, FrozenRefund, Refund
from onecharge.payments.refunds.worker import RefundWorker
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.runtime.consumer import BackOff, Disposition, PoisonMessage


@dataclass(frozen=True)
class RefundCharge(DeliveryHandler[Refund, Finalize, RefundRequestedEvent]):
    """Refunds charges: however many deliveries a refund has, together they make it once."""

    worker: RefundWorker
    payments: PaymentStore

    def __call__(self, event: RefundRequestedEvent) -> Disposition:
        """Handle one delivery. Raises PoisonMessage."""
        started_at = self.instruments.clock()
        now = int(started_at)
        if int(event.data.requested_at.timestamp()) > now + FUTURE_MAX_SECONDS:
            raise PoisonMessage("data.requested_at: in the future")
        payment_intent_id = self._paid_with(event)
        if payment_intent_id is None:
            self._log(event, "refund waits for its payment")
            return BackOff()
        claim = self.worker.store.claim(
            FrozenRefund.of(event.data, payment_intent_id),
            correlation_id=event.correlationid,
            owner=new_lease_owner(),
            now=now,
            lease_seconds=self.bounds.lease_seconds,
        )
        return self._after_claim(event, claim, started_at=started_at)

    def _differs(self, event: RefundRequestedEvent, row: Refund) -> bool:
        return (event.data.amount_minor, event.data.currency) != (row.request.amount_minor, row.request.currency)

    def _paid_with(self, event: RefundRequestedEvent) -> str | None:
        """The PaymentIntent that paid the order; None if the Payments table does not say that one did."""
        payment = self.payments.read(event.data.order_id)
        if payment is None or payment.state is not PaymentState.SUCCEEDED:
            return None
        if event.data.currency != payment.request.currency or event.data.amount_minor > payment.request.amount_minor:
            raise PoisonMessage("data.amount_minor: more than was charged, or other money")
        return payment.payment_intent_id
