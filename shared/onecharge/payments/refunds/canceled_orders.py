"""An order that is charged although it is canceled is refunded by the payment service itself."""

from collections.abc import Callable
from dataclasses import dataclass

from onecharge.payments.charges.protocol import FoundIntent, Payment
from onecharge.payments.charges.worker import Unfinished
from onecharge.payments.leases import HeldByAnother, new_lease_owner
from onecharge.payments.refunds.protocol import FrozenRefund, Refund, refund_id_of_canceled_order
from onecharge.payments.refunds.store import RefundAlreadyFinal, RefundClaimed
from onecharge.payments.refunds.worker import RefundWorker
from onecharge.payments.time_bounds import TimeBounds


class RefundUnfinished(Exception):
    """The money is not given back yet: come again."""


@dataclass(frozen=True)
class CanceledOrderRefunds:
    """Refunds all of such a PaymentIntent, once: the refund id derives from the order and the PaymentIntent."""

    worker: RefundWorker
    bounds: TimeBounds
    clock: Callable[[], float]

    def __call__(self, payment: Payment, intent: FoundIntent) -> None:
        """Refund all of the PaymentIntent that the canceled order was charged with. Raises RefundUnfinished."""
        result = self.refund_canceled_order(
            payment.request.order_id,
            intent,
            attempt=payment.attempt,
            correlation_id=payment.correlation_id,
            deadline=self.bounds.deadline(self.clock()),
        )
        if isinstance(result, Unfinished):
            raise RefundUnfinished(result.why)

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
            lease_seconds=self.bounds.lease_seconds,
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
