"""An order that is charged although it is canceled is refunded by the payment service itself."""

from collections.abc import Callable
from dataclasses import dataclass

from onecharge.payments.leases import HeldByAnother, new_lease_owner
from onecharge.payments.protocol import FoundIntent
from onecharge.payments.refund_protocol import FrozenRefund, Refund, refund_id_of_canceled_order
from onecharge.payments.refund_store import RefundAlreadyFinal, RefundClaimed
from onecharge.payments.refund_worker import RefundWorker
from onecharge.payments.worker import Unfinished


@dataclass(frozen=True)
class CanceledOrderRefunds:
    """Refunds all of such a PaymentIntent, once: the refund id derives from the order and the PaymentIntent."""

    worker: RefundWorker
    lease_seconds: int
    clock: Callable[[], float]

    def refund_canceled_order(
        self, order_id: str, intent: FoundIntent, *, attempt: int, correlation_id: str, deadline: float
    ) -> Refund | Unfinished:
        """Refund the PaymentIntent that succeeded; idempotent.

        Returns:
            The refund as it is by now; or why it is not finished, and then the caller has to come again.
        """
        now = int(self.clock())
        request = FrozenRefund(
            order_id=order_id,
            refund_id=refund_id_of_canceled_order(order_id, intent.payment_intent_id),
            attempt=attempt,
            amount_minor=intent.amount_minor,
            currency=intent.currency,
            payment_intent_id=intent.payment_intent_id,
            requested_at=now,
        )
        claim = self.worker.store.claim(
            request,
            correlation_id=correlation_id,
            owner=new_lease_owner(),
            now=now,
            lease_seconds=self.lease_seconds,
            is_internal=True,
        )
        match claim:
            case RefundClaimed(refund):
                self.worker.count("CanceledOrderRefunded")
                self.worker.count("Alarm")
                return self.worker.work(refund, deadline=deadline)
            case RefundAlreadyFinal(refund):
                return refund
            case HeldByAnother():
                return Unfinished("another worker refunds it")
