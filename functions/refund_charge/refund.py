"""One delivery of one refund: claim it, then work on it, or ignore the duplicate.

RefundRequested ─┬─► RefundStore.claim ─► payments/delivery.py ─┬─► RefundWorker ─► Done, or BackOff
                 │   (an atomic write)                          └─► duplicate ────► Done, or RetryAfter
                 └─► the order is not paid yet ─► BackOff
"""

from dataclasses import dataclass

from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.delivery import after_claim, log_delivery, require_past
from onecharge.payments.leases import new_lease_owner
from onecharge.payments.refunds.protocol import FrozenRefund, Refund
from onecharge.payments.refunds.service import Refunds
from onecharge.runtime.consumer import BackOff, Disposition, PoisonMessage


@dataclass(frozen=True)
class RefundCharge:
    """Refunds charges: however many deliveries a refund has, together they make it once."""

    refunds: Refunds
    payments: PaymentStore

    def __call__(self, event: RefundRequestedEvent) -> Disposition:
        """Handle one delivery. Raises PoisonMessage."""
        instruments = self.refunds.instruments
        require_past("data.requested_at", event.data.requested_at, instruments)
        started_at = instruments.clock()
        payment_intent_id = self._paid_with(event)
        if payment_intent_id is None:
            log_delivery(instruments, event, "refund waits for its payment")
            return BackOff()
        claim = self.refunds.store.claim(
            FrozenRefund.of(event.data, payment_intent_id),
            correlation_id=event.correlationid,
            owner=new_lease_owner(),
            now=int(started_at),
            lease_seconds=self.refunds.bounds.lease_seconds,
        )
        return after_claim(
            event, claim, self.refunds.worker, self.refunds.bounds, differs=differs, started_at=started_at
        )

    def _paid_with(self, event: RefundRequestedEvent) -> str | None:
        """The PaymentIntent that paid the order; None if the Payments table does not say that one did."""
        payment = self.payments.read(event.data.order_id)
        if payment is None or payment.state is not PaymentState.SUCCEEDED:
            return None
        if event.data.currency != payment.request.currency or event.data.amount_minor > payment.request.amount_minor:
            raise PoisonMessage("data.amount_minor: more than was charged, or other money")
        return payment.payment_intent_id


def differs(event: RefundRequestedEvent, refund: Refund) -> bool:
    """Whether the message has other data than the row has frozen."""
    return (event.data.amount_minor, event.data.currency) != (refund.request.amount_minor, refund.request.currency)
