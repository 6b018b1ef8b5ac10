"""One delivery of one order: claim the attempt, then charge it, or ignore the duplicate.

OrderPlaced ─► PaymentStore.claim ─► payments/deliveries.py ─┬─► charge ────► Done, or BackOff
               (an atomic write)                       └─► duplicate ─► Done, or RetryAfter
"""

from dataclasses import replace

from onecharge.contract.events import OrderPlacedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.charge import charge
from onecharge.payments.charge_rules import FrozenRequest, Payment
from onecharge.payments.deliveries import REEMIT_AFTER_SECONDS, after_claim, require_past
from onecharge.payments.rows import Claim, Superseded, new_lease_owner
from onecharge.payments.tools import Tools
from onecharge.runtime.consumer import Disposition


def charge_order(event: OrderPlacedEvent, tools: Tools) -> Disposition:
    """Handle one delivery: however many an order has, together they charge it once. Raises PoisonMessage."""
    # The order's age decides whether to look up: a time in the future would switch the lookup off.
    require_past("data.placed_at", event.data.placed_at, tools.instruments)
    claim = _claim(event, tools, event.data.attempt, event.data.payment_method)
    if isinstance(claim, Superseded) and _resumes_later_attempt(event, claim.row, tools):
        claim = _claim(event, tools, claim.row.attempt, claim.row.payment_method)
    return after_claim(event, claim, tools.payments, tools, lambda row: charge(row, tools), differs=differs)


def _claim(event: OrderPlacedEvent, tools: Tools, attempt: int, payment_method: str) -> Claim[Payment]:
    return tools.payments.claim(
        FrozenRequest.of(event.data, terms_version=tools.stripe.terms_version),
        attempt=attempt,
        payment_method=payment_method,
        correlation_id=event.correlationid,
        owner=new_lease_owner(),
        now=tools.instruments.now(),
        lease_seconds=tools.lease_seconds,
    )


def _resumes_later_attempt(event: OrderPlacedEvent, row: Payment, tools: Tools) -> bool:
    """Whether this message continues the row's later attempt, which is unfinished, and whose own message is gone.

    The order was restored, or lost and placed again: it asks for an earlier attempt, and has forgotten the unfinished
    one. If it was placed again, its time is another one; the row keeps its own.
    """
    is_unattended = tools.instruments.now() - row.claimed_at >= REEMIT_AFTER_SECONDS
    is_unfinished = row.state is PaymentState.PENDING and row.cancel_requested_at is None
    asked = replace(FrozenRequest.of(event.data), placed_at=row.request.placed_at)
    return is_unfinished and is_unattended and row.payment_method != "" and asked == row.request


def differs(event: OrderPlacedEvent, payment: Payment) -> bool:
    """Whether the message has other data than the row has frozen."""
    same_attempt = payment.attempt == event.data.attempt
    # "": a recovered row has no payment method.
    other_method = same_attempt and payment.payment_method not in ("", event.data.payment_method)
    return FrozenRequest.of(event.data) != payment.request or other_method
