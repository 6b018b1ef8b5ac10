"""An order that is charged although it is canceled: the payment service refunds it without being asked."""

from onecharge.payments.charge_rules import Payment, StripeIntent
from onecharge.payments.deliveries import Unfinished, finalize_claimed
from onecharge.payments.refund import refund
from onecharge.payments.refund_rules import FrozenRefund, refund_id_of_canceled_order
from onecharge.payments.rows import Claimed, HeldByAnother, new_lease_owner
from onecharge.payments.stripe_events import EventDeferred
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause


def refund_canceled_order(payment: Payment, intent: StripeIntent, tools: Tools) -> None:
    """Refund the PaymentIntent in full, once: its refund id is derived from the order and the PaymentIntent.

    Raises:
        EventDeferred: the refund is not finished yet, and has to be requested again.
    """
    instruments = tools.instruments
    order_id, now = payment.request.order_id, instruments.now()
    request = FrozenRefund(
        order_id=order_id,
        refund_id=refund_id_of_canceled_order(order_id, intent.payment_intent_id),
        attempt=payment.attempt,
        amount_minor=intent.amount_minor,
        currency=intent.currency,
        payment_intent_id=intent.payment_intent_id,
        requested_at=now,
    )
    claim = tools.refunds.claim(
        request,
        correlation_id=payment.correlation_id,
        owner=new_lease_owner(),
        now=now,
        lease_seconds=tools.lease_seconds,
        is_internal=True,
    )
    if isinstance(claim, HeldByAnother):
        raise EventDeferred("another worker refunds the canceled order")
    if isinstance(claim, Claimed):
        instruments.count("CanceledOrderCharged")
        instruments.log("charged although canceled: refunded", alarm=Cause.MONEY_DIFFERS, **claim.row.log_fields)
        result = finalize_claimed(lambda row: refund(row, tools), claim.row, tools.refunds, instruments)
        if isinstance(result, Unfinished):
            raise EventDeferred(result.why)
