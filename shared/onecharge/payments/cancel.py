"""A cancellation: stored first, then finished by whichever worker claims the row. CANCELED only when Stripe says so.

request_cancel ─► SUCCEEDED, CANCELED or NEEDS_REVIEW already ─► nothing is left to do
   │ every later claim cancels, and never confirms
   ├─► the lease is free ─► claim ─► `charge` cancels at Stripe, which decides the race ─► CANCELED or SUCCEEDED
   └─► another worker has it, or Stripe does not answer ─► a later delivery or the reconciler finishes it
"""

from onecharge.contract.events import OrderPlaced
from onecharge.payments.charge import charge
from onecharge.payments.charge_rules import CLOSED_STATES, FrozenRequest, Payment
from onecharge.payments.deliveries import Unfinished, finalize_claimed
from onecharge.payments.rows import Claimed, new_lease_owner
from onecharge.payments.tools import Tools


def cancel_payment(order: OrderPlaced, tools: Tools, *, correlation_id: str) -> Payment:
    """Request the cancellation of the order's payment, and finish it if that is possible now. Idempotent."""
    payment = tools.payments.request_cancel(
        FrozenRequest.of(order, terms_version=tools.stripe.terms_version),
        attempt=order.attempt,
        payment_method=order.payment_method,
        correlation_id=correlation_id,
        now=tools.instruments.now(),
    )
    if payment.state not in CLOSED_STATES:
        payment = finish_cancellation(payment, tools)
    tools.instruments.count(f"Cancellation.{payment.state}")
    tools.instruments.log("cancellation requested", alarm=None, **payment.log_fields, state=payment.state)
    return payment


def finish_cancellation(payment: Payment, tools: Tools) -> Payment:
    """Cancel at Stripe, as far as that is possible now; returns the row as it is then.

    Args:
        payment: with a cancellation requested.
    """
    order_id = payment.request.order_id
    claim = tools.payments.claim_to_cancel(
        order_id, owner=new_lease_owner(), now=tools.instruments.now(), lease_seconds=tools.lease_seconds
    )
    if isinstance(claim, Claimed):
        result = finalize_claimed(lambda row: charge(row, tools), claim.row, tools.payments, tools.instruments)
        if not isinstance(result, Unfinished):
            return result
    return tools.payments.read(order_id) or payment
