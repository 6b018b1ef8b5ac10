"""The refund protocol's view of Stripe's objects, as the SDK returns them.

The SDK's objects have no attribute for what a response leaves out.
"""

import stripe

from onecharge.contract.events import ATTEMPT_NUMBER_MAX
from onecharge.payments.payment_intents import metadata_of
from onecharge.payments.refund_rules import StripeRefund


def read_refund(refund: "stripe.Refund") -> StripeRefund:  # In quotes: Stripe imports it only if it is named.
    """What the protocol needs to know of a refund that the SDK returned."""
    attempt = metadata_of(refund).get("attempt", "")
    is_pending = getattr(refund, "status", None) == "pending"
    is_attempt = attempt.isdecimal() and 1 <= int(attempt) <= ATTEMPT_NUMBER_MAX
    return StripeRefund(
        stripe_refund_id=refund.id,
        status=getattr(refund, "status", None) or "none",
        amount_minor=refund.amount,
        currency=refund.currency.upper(),
        failure_reason=getattr(refund, "failure_reason", None),
        pending_reason=getattr(refund, "pending_reason", None) if is_pending else None,
        attempt=int(attempt) if is_attempt else 1,
        created=getattr(refund, "created", 0),
        refund_id=metadata_of(refund).get("refund_id"),
    )
