"""A cancellation: stored first, then finished by whoever holds the row. CANCELED is said only on Stripe's word.

request_cancel ─► CANCELED, PAID or NEEDS_REVIEW already ──────────────────────────────────────► say so
   │ from now on whoever holds the row cancels, and never confirms
   ├─► the lease is free ─► claim ─► the worker: cancel at Stripe, which decides the race ─────► CANCELED or PAID
   ├─► another holds it ─► cancel the PaymentIntent that the row names; Stripe decides the race ─► CANCELED
   └─► it names none, the holder was faster, or Stripe does not answer ─► CANCELING: it ends by itself

Canceling beside the holder is safe. `canceled` is Stripe's last word on a PaymentIntent, and so is its reason: with the
customer's, nobody ever creates a next generation. From then on the holder's confirm is refused, and what it retrieves
says why. A restored row may name an older PaymentIntent: that one was canceled as abandoned, which is no answer.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from aws_lambda_powertools import Logger

from onecharge.contract.events import OrderPlaced
from onecharge.contract.questions import Cancellation
from onecharge.contract.states import PaymentState
from onecharge.payments.charges.protocol import CancelReason, Finalize, FrozenRequest, Payment
from onecharge.payments.charges.store import Claimed, PaymentStore
from onecharge.payments.charges.worker import PaymentWorker, Unfinished
from onecharge.payments.leases import new_lease_owner
from onecharge.payments.time_bounds import TimeBounds

_ANSWERS = {
    PaymentState.CANCELED: Cancellation.CANCELED,
    PaymentState.SUCCEEDED: Cancellation.PAID,
    PaymentState.NEEDS_REVIEW: Cancellation.NEEDS_REVIEW,
}

_TRIES = 2
"""How often a row that its holder changes meanwhile is finalized beside it: it has little left to write."""


@dataclass(frozen=True)
class CancelPayment:
    """Cancels payments through a store and a worker; `clock` gives the time in epoch seconds."""

    store: PaymentStore
    worker: PaymentWorker | None
    """None if the Stripe key cannot be read: then the request is stored, and somebody else finishes it."""
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
        """Cancel at Stripe, as far as it goes now; returns the row as it is then.

        Args:
            payment: with a cancellation requested.
            deadline: epoch seconds, after which no further request to Stripe is begun.
        """
        if self.worker is None:
            return payment
        order_id = payment.request.order_id
        claim = self.store.claim_to_cancel(
            order_id, owner=new_lease_owner(), now=int(self.clock()), lease_seconds=self.bounds.lease_seconds
        )
        if isinstance(claim, Claimed):
            result = self.worker.work(claim.payment, deadline=deadline)
            return (self.store.read(order_id) or claim.payment) if isinstance(result, Unfinished) else result
        return self._finish_beside_the_holder(self.worker, self.store.read(order_id) or payment, deadline)

    def _finish_beside_the_holder(self, worker: PaymentWorker, payment: Payment, deadline: float) -> Payment:
        """Cancel the PaymentIntent that the row names, without its lease; CANCELED only if it still names that one."""
        canceled_id = payment.payment_intent_id
        if payment.state in _ANSWERS or canceled_id is None or self.clock() >= deadline:
            return payment
        intent = worker.gateway.cancel(canceled_id, CancelReason.BY_CUSTOMER).intent
        if intent is None or not intent.is_canceled_by_customer:
            return payment
        final = Finalize(PaymentState.CANCELED, intent.payment_intent_id, intent.generation)
        for _ in range(_TRIES):
            payment = self.store.read(payment.request.order_id) or payment
            if payment.state in _ANSWERS or payment.payment_intent_id != canceled_id:
                return payment
            if self.store.finalize_unclaimed(payment, final, now=int(self.clock())):
                self.count("CanceledBesideHolder")
                return replace(payment, state=PaymentState.CANCELED)
        return payment
