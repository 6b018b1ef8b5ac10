"""An order that is charged although it is canceled: the payment service refunds it without being asked."""

from dataclasses import dataclass

from onecharge.payments.charges.protocol import FoundIntent, Payment
from onecharge.payments.leases import Claimed, HeldByAnother, new_lease_owner
from onecharge.payments.refunds.protocol import FrozenRefund, refund_id_of_canceled_order
from onecharge.payments.refunds.worker import RefundWorker
from onecharge.payments.stripe_events import EventDeferred
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.worker import Unfinished
from onecharge.runtime.alarms import Cause
from onecharge.runtime.metrics import Alarm


@dataclass(frozen=True)
class RefundCanceledOrder:
    """Refunds such a PaymentIntent in full, once: the refund id is derived from the order and the PaymentIntent."""

    worker: RefundWorker
    bounds: TimeBounds

    def __call__(self, payment: Payment, intent: FoundIntent) -> None:
        """Refund the PaymentIntent. Idempotent.

        Raises:
            EventDeferred: the refund is not finished yet, and has to be requested again.
        """
        instruments = self.worker.instruments
        deadline = self.bounds.deadline(instruments.clock())
        order_id, now = payment.request.order_id, instruments.now()
        request = FrozenRefund(
            order_id=order_id,
            refund_id=refund_id_of_canceled_order(order_id, intent.payment_intent_id),
            attempt=payment.attempt,
            amount_minor=intent.amount_minor,
            currency=intent.currency,
            payment_intent_id=intent.payment_intent_id,
            requested_at=now,
        )
        claim = self.worker.store.claim(
            request,
            correlation_id=payment.correlation_id,
            owner=new_lease_owner(),
            now=now,
            lease_seconds=self.bounds.lease_seconds,
            is_internal=True,
        )
        if isinstance(claim, HeldByAnother):
            raise EventDeferred("another worker refunds the canceled order")
        if isinstance(claim, Claimed):
            instruments.count("CanceledOrderRefunded")
            instruments.count(Alarm(Cause.MONEY_DIFFERS))
            result = self.worker.work(claim.row, deadline=deadline)
            if isinstance(result, Unfinished):
                raise EventDeferred(result.why)
