"""Refunds a PaymentIntent in full, once: by the refund protocol, as that of a canceled order that was charged.

The refund's id derives from the order and the PaymentIntent, so that whoever refunds it, and however often, there is
one refund. A lookup precedes every request (payments/refunds/protocol.py).
"""

import time
from collections.abc import Callable

from aws_lambda_powertools import Logger

from onecharge.contract.refunds import RefundState
from onecharge.payments.charges.protocol import FoundIntent, Payment
from onecharge.payments.instruments import Instruments
from onecharge.payments.refunds.canceled_orders import refund_canceled_order
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.protocol import refund_id_of_canceled_order
from onecharge.payments.refunds.refund import RefundTools
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.stripe_events import EventDeferred
from onecharge.payments.stripe_rate import StripeRate
from onecharge.payments.time_bounds import TimeBounds
from ops.connection import Stack

_SECONDS = 30
"""As long as a function would take for it."""


def refund_once(stack: Stack) -> Callable[[Payment, FoundIntent], str | None]:
    """What refunds with the stack's table and Stripe account; returns why it is not refunded, or None."""

    def refund(payment: Payment, intent: FoundIntent) -> str | None:
        store = RefundStore(stack.dynamodb, stack.resource("RefundsTable"))
        instruments = Instruments(time.time, Logger(service="ops", level="CRITICAL"), lambda _: None)
        bounds = TimeBounds.of(_SECONDS)
        tools = RefundTools(
            store=store,
            gateway=StripeRefunds(stack.stripe),
            instruments=instruments,
            rate=StripeRate(per_second=1),
            lease_seconds=bounds.lease_seconds,
            deadline=bounds.deadline(time.time()),
        )
        try:
            refund_canceled_order(payment, intent, tools)
        except EventDeferred as deferred:
            return str(deferred)
        order_id = payment.request.order_id
        made = store.read(order_id, refund_id_of_canceled_order(order_id, intent.payment_intent_id))
        if made is None or made.state is not RefundState.SUCCEEDED:
            return f"the refund is {made.state}: {made.failure_code}" if made else "its row is lost"
        return None

    return refund
