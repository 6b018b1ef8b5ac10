"""One delivery of one order: claim the attempt, then charge it, or ignore the duplicate.

OrderPlaced ─► PaymentStore.claim ─► payments/work.py ─┬─► charge ────► Done, or BackOff
               (an atomic write)                       └─► duplicate ─► Done, or RetryAfter
"""

from onecharge.contract.events import OrderPlacedEvent
from onecharge.payments.charges.charge import ChargeTools, charge
from onecharge.payments.charges.protocol import FrozenRequest, Payment
from onecharge.payments.leases import new_lease_owner
from onecharge.payments.work import after_claim, require_past
from onecharge.runtime.consumer import Disposition


def charge_order(event: OrderPlacedEvent, tools: ChargeTools) -> Disposition:
    """Handle one delivery: however many an order has, together they charge it once. Raises PoisonMessage."""
    # The order's age decides whether to look up: a time in the future would switch the lookup off.
    require_past("data.placed_at", event.data.placed_at, tools.instruments)
    claim = tools.store.claim(
        FrozenRequest.of(event.data),
        attempt=event.data.attempt,
        payment_method=event.data.payment_method,
        correlation_id=event.correlationid,
        owner=new_lease_owner(),
        now=tools.instruments.now(),
        lease_seconds=tools.lease_seconds,
    )
    return after_claim(event, claim, tools, lambda row: charge(row, tools), differs=differs)


def differs(event: OrderPlacedEvent, payment: Payment) -> bool:
    """Whether the message has other data than the row has frozen."""
    same_attempt = payment.attempt == event.data.attempt
    # "": a recovered row has no payment method.
    other_method = same_attempt and payment.payment_method not in ("", event.data.payment_method)
    return FrozenRequest.of(event.data) != payment.request or other_method
