"""A cancellation: stored first, then finished by whoever holds the row. CANCELED is answered only on Stripe's word.

request_cancel ─► CANCELED, PAID or NEEDS_REVIEW already ─────────────────────────────────────► that is the answer
   │ from now on whoever holds the row cancels, and never confirms
   ├─► the lease is free ─► claim ─► the worker cancels at Stripe, which decides the race ─────► CANCELED or PAID
   └─► another holds it, or Stripe does not answer ────────────────────────────────────────────► CANCELING

CANCELING ends by itself: the order service's message, or the reconciler, finishes the cancellation.
"""

from dataclasses import dataclass
from enum import StrEnum

from onecharge.contract.events import OrderPlaced
from onecharge.contract.states import PaymentState
from onecharge.payments.charges.protocol import TERMINAL_STATES, FrozenRequest, Payment
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.charges.worker import PaymentWorker
from onecharge.payments.instruments import Instruments
from onecharge.payments.leases import Claimed, new_lease_owner
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.worker import Unfinished


class Cancellation(StrEnum):
    """The result of a request to cancel a payment."""

    CANCELED = "CANCELED"
    """By Stripe's word: no PaymentIntent of the order can be charged any more."""
    PAID = "PAID"
    """The charge succeeded first."""
    CANCELING = "CANCELING"
    """The request is stored: nothing is confirmed from now on, and it becomes CANCELED or PAID by itself."""
    NEEDS_REVIEW = "NEEDS_REVIEW"
    """A person has to review the payment first."""


_ANSWERS = {
    PaymentState.CANCELED: Cancellation.CANCELED,
    PaymentState.SUCCEEDED: Cancellation.PAID,
    PaymentState.NEEDS_REVIEW: Cancellation.NEEDS_REVIEW,
}
"""Of each terminal state."""


@dataclass(frozen=True)
class CancelPayment:
    """Cancels payments through a store and a worker."""

    store: PaymentStore
    worker: PaymentWorker | None
    """None if the Stripe key cannot be read: then the request is stored, and finished later."""
    bounds: TimeBounds
    instruments: Instruments

    def __call__(self, order: OrderPlaced, *, correlation_id: str) -> tuple[Cancellation, Payment]:
        """Cancel the order's payment; returns the answer, and the row as it is then. Idempotent."""
        started_at = self.instruments.clock()
        payment = self.store.request_cancel(
            FrozenRequest.of(order),
            attempt=order.attempt,
            payment_method=order.payment_method,
            correlation_id=correlation_id,
            now=self.instruments.now(),
        )
        if payment.state not in TERMINAL_STATES:
            payment = self.finish(payment, deadline=self.bounds.deadline(started_at))
        cancellation = _ANSWERS.get(payment.state, Cancellation.CANCELING)
        self.instruments.count(f"Cancellation.{cancellation}")
        self.instruments.log(
            "cancellation requested",
            order_id=order.order_id,
            attempt=payment.attempt,
            correlation_id=correlation_id,
            cancellation=cancellation,
        )
        return cancellation, payment

    def finish(self, payment: Payment, *, deadline: float) -> Payment:
        """Cancel at Stripe, as far as that is possible now; returns the row as it is then.

        Args:
            payment: with a cancellation requested.
            deadline: epoch seconds, after which no further request to Stripe is begun.
        """
        if self.worker is None:
            return payment
        order_id = payment.request.order_id
        claim = self.store.claim_to_cancel(
            order_id,
            owner=new_lease_owner(),
            now=self.instruments.now(),
            lease_seconds=self.bounds.lease_seconds,
        )
        if isinstance(claim, Claimed):
            result = self.worker.work(claim.row, deadline=deadline)
            return (self.store.read(order_id) or claim.row) if isinstance(result, Unfinished) else result
        return self.store.read(order_id) or payment
