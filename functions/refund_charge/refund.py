"""One delivery of one refund: claim it, then make it, or ignore the duplicate.

RefundRequested ─┬─► RefundStore.claim ─► payments/refund_deliveries.py ─┬─► refund ────► Done, or BackOff
                 │   (an atomic write)                      └─► duplicate ─► Done, or RetryAfter
                 └─► the order is not paid yet ─► BackOff
"""

from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rows import new_lease_owner
from onecharge.payments.refund_deliveries import after_claim, log_delivery, require_past
from onecharge.payments.refund_rules import FrozenRefund
from onecharge.payments.refund_tools import RefundTools
from onecharge.runtime.consumer import BackOff, Disposition, PoisonMessage


def refund_charge(event: RefundRequestedEvent, tools: RefundTools) -> Disposition:
    """Handle one delivery: however many a refund has, together they make it once. Raises PoisonMessage."""
    require_past("data.requested_at", event.data.requested_at, tools.instruments)
    payment_intent_id = _paid_with(event, tools)
    if payment_intent_id is None:
        log_delivery(tools.instruments, event, "refund waits for its payment")
        return BackOff()
    claim = tools.refunds.claim(
        FrozenRefund.of(event.data, payment_intent_id),
        correlation_id=event.correlationid,
        owner=new_lease_owner(),
        now=tools.instruments.now(),
        lease_seconds=tools.lease_seconds,
    )
    return after_claim(event, claim, tools)


def _paid_with(event: RefundRequestedEvent, tools: RefundTools) -> str | None:
    """The PaymentIntent that paid the order; None if the Payments table does not say that one did."""
    payment = tools.payments.read(event.data.order_id)
    if payment is None or payment.state is not PaymentState.SUCCEEDED:
        return None
    if event.data.currency != payment.request.currency or event.data.amount_minor > payment.request.amount_minor:
        raise PoisonMessage("data.amount_minor: more than was charged, or other money")
    return payment.payment_intent_id
