"""One delivery of a request to cancel an order.

CancelRequested ─► cancel_payment ─┬─► CANCELED, SUCCEEDED, NEEDS_REVIEW ─► Done; a late one emits the outcome again
                                   └─► another state ─────────────────────► BackOff, until Stripe has decided
"""

from onecharge.contract.events import CancelRequestedEvent
from onecharge.payments.cancel import cancel_payment
from onecharge.payments.charge_rules import CLOSED_STATES
from onecharge.payments.deliveries import reemit_if_late, require_past
from onecharge.payments.tools import Tools
from onecharge.runtime.consumer import BackOff, Disposition, Done


def cancel_order(event: CancelRequestedEvent, tools: Tools) -> Disposition:
    """Handle one delivery. Raises PoisonMessage."""
    require_past("data.placed_at", event.data.placed_at, tools.instruments)
    payment = cancel_payment(event.data, tools, correlation_id=event.correlationid)
    if payment.state not in CLOSED_STATES:
        return BackOff()
    reemit_if_late(tools.payments, payment, tools.instruments)
    return Done()
