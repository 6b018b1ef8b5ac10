"""One delivery of one order: claim the attempt, then work on it, or ignore the duplicate.

OrderPlaced ─► PaymentStore.claim ─► payments/delivery.py ─┬─► PaymentWorker ─► Done, or BackOff
               (an atomic write)                           └─► duplicate ─────► Done, or RetryAfter

A message that was received before is often a duplicate: if its row, read with those of the whole batch, is final, the
claim would be refused, and is not tried.
"""

from dataclasses import dataclass

from onecharge.contract.events import OrderPlacedEvent
from onecharge.payments.charges.protocol import FrozenRequest, Payment
from onecharge.payments.charges.store import refusal_of
from onecharge.payments.delivery import after_claim, require_past
from onecharge.payments.leases import AlreadyFinal, HeldByAnother, Superseded, new_lease_owner
from onecharge.payments.service import Charges
from onecharge.runtime.consumer import Disposition


@dataclass(frozen=True)
class ChargeOrder:
    """Charges orders: however many deliveries an order has, together they charge it once."""

    charges: Charges

    def __call__(self, event: OrderPlacedEvent) -> Disposition:
        """Handle one delivery. Raises PoisonMessage."""
        instruments = self.charges.instruments
        # The order's age decides whether to look up: a time in the future would switch the lookup off.
        require_past("data.placed_at", event.data.placed_at, instruments)
        started_at = instruments.clock()
        claim = self._known_refusal(event) or self.charges.store.claim(
            FrozenRequest.of(event.data),
            attempt=event.data.attempt,
            payment_method=event.data.payment_method,
            correlation_id=event.correlationid,
            owner=new_lease_owner(),
            now=instruments.now(),
            lease_seconds=self.charges.bounds.lease_seconds,
        )
        return after_claim(
            event, claim, self.charges.worker, self.charges.bounds, differs=differs, started_at=started_at
        )

    def _known_refusal(self, event: OrderPlacedEvent) -> AlreadyFinal[Payment] | Superseded[Payment] | None:
        """What the claim would have been refused with when the row was read, if it would."""
        row = self.charges.seen.get(event.data.order_id)
        refusal = refusal_of(row, event.data.attempt) if row else None
        return None if isinstance(refusal, HeldByAnother) else refusal


def differs(event: OrderPlacedEvent, payment: Payment) -> bool:
    """Whether the message has other data than the row has frozen."""
    same_attempt = payment.attempt == event.data.attempt
    # "": a recovered row has no payment method.
    other_method = same_attempt and payment.payment_method not in ("", event.data.payment_method)
    return FrozenRequest.of(event.data) != payment.request or other_method
