"""One delivery of a request to cancel an order: for a cancellation that was not finished while the customer waited.

CancelRequested ─► CancelPayment ─┬─► CANCELED, PAID or NEEDS_REVIEW ─► Done; a late one has the outcome emitted again
                                  └─► CANCELING ──────────────────────► BackOff, until Stripe has decided
"""

from dataclasses import dataclass

from onecharge.contract.events import CancelRequestedEvent
from onecharge.payments.charges.cancel import Cancellation
from onecharge.payments.delivery import reemit_if_late, require_past
from onecharge.payments.service import Charges
from onecharge.runtime.consumer import BackOff, Disposition, Done


@dataclass(frozen=True)
class CancelOrder:
    """Cancels payments that the order service has asked to cancel."""

    charges: Charges

    def __call__(self, event: CancelRequestedEvent) -> Disposition:
        """Handle one delivery. Raises PoisonMessage."""
        require_past("data.placed_at", event.data.placed_at, self.charges.instruments)
        cancellation, payment = self.charges.cancel(event.data, correlation_id=event.correlationid)
        if cancellation is Cancellation.CANCELING:
            return BackOff()
        reemit_if_late(self.charges.store, payment, self.charges.instruments)
        return Done()
