"""A cancellation: stored first, then finished by whoever holds the row. CANCELED is said only on Stripe's word.

request_cancel ─► CANCELED, PAID or NEEDS_REVIEW already ──────────────────────────────────────► say so
   │ from now on whoever holds the row cancels, and never confirms
   ├─► the lease is free ─► claim ─► the worker: cancel at Stripe, which decides the race ─────► CANCELED or PAID
   └─► another holds it, or Stripe does not answer ─► CANCELING: it ends by itself
"""

from collections.abc import Callable
from dataclasses import dataclass

from aws_lambda_powertools import Logger

from onecharge.events import OrderPlaced
from onecharge.payments.leases import new_lease_owner
from onecharge.payments.protocol import FrozenRequest, Payment
from onecharge.payments.store import Claimed, PaymentStore
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.worker import PaymentWorker, Unfinished
from onecharge.questions import Cancellation
from onecharge.states import PaymentState

_ANSWERS = {
    PaymentState.CANCELED: Cancellation.CANCELED,
    PaymentState.SUCCEEDED: Cancellation.PAID,
    PaymentState.NEEDS_REVIEW: Cancellation.NEEDS_REVIEW,
}


@dataclass(frozen=True)
class CancelPayment:
    """Cancels payments through a store and a worker; `clock` gives the time in epoch seconds."""

    store: PaymentStore
    worker: PaymentWorker
    bounds: TimeBounds
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, order: OrderPlaced, *, correlation_id: str) -> tuple[Cancellation, Payment]:
        """Cancel the order's payment, with the row as it is then. Idempotent."""
        started_at = self.clock()
        payment = self.store.request_cancel(
            FrozenRequest.of(order),
            attempt=order.attempt,
            payment_method=order.payment_method,
            correlation_id=correlation_id,
            now=int(self.clock()),
        )
        if payment.state not in _ANSWERS:
            payment = self.finish(payment, deadline=self.bounds.deadline(started_at))
        cancellation = _ANSWERS.get(payment.state, Cancellation.CANCELING)
        self.count(f"Cancellation.{cancellation}")
        self.logger.info(
            "cancellation requested",
            extra={
                "order_id": order.order_id,
                "attempt": payment.attempt,
                "correlation_id": correlation_id,
                "cancellation": cancellation,
            },
        )
        return cancellation, payment

    def finish(self, payment: Payment, *, deadline: float) -> Payment:
        """Claim the row and let the worker cancel it, as far as it goes now; returns the row as it is then."""
        order_id = payment.request.order_id
        claim = self.store.claim_to_cancel(
            order_id, owner=new_lease_owner(), now=int(self.clock()), lease_seconds=self.bounds.lease_seconds
        )
        if not isinstance(claim, Claimed):
            return self.store.read(order_id) or payment
        result = self.worker.work(claim.payment, deadline=deadline)
        return (self.store.read(order_id) or claim.payment) if isinstance(result, Unfinished) else result
