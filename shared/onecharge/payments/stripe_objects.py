"""What the protocols need to know of Stripe's objects, as the SDK returns them.

The SDK's objects have no attribute for what a response leaves out.
"""

import re
from typing import Any

import stripe

from onecharge.contract.events import ATTEMPT_NUMBER_MAX, DO_NOT_TRY_AGAIN, ORDER_ID_PATTERN
from onecharge.payments.charge_rules import StripeIntent
from onecharge.payments.refund_rules import StripeRefund


def metadata_of(made: Any) -> dict[str, str]:
    """The metadata of an object that the SDK returned. It has no attribute for what a response leaves out."""
    metadata = getattr(made, "metadata", None)
    return metadata.to_dict() if metadata is not None else {}


def order_id_of(made: Any) -> str | None:
    """The order that an object belongs to, by its metadata; None if it is not ours: others may share the account."""
    order_id = metadata_of(made).get("order_id", "")
    return order_id if re.match(ORDER_ID_PATTERN, order_id) else None


def read_intent(intent: Any) -> StripeIntent:
    """What the protocol needs to know of a PaymentIntent that the SDK returned."""
    decline_code, advice_code, refused_card = _decline_of(intent)
    metadata = metadata_of(intent)
    return StripeIntent(
        payment_intent_id=intent.id,
        status=intent.status,
        amount_minor=intent.amount,
        currency=intent.currency.upper(),
        generation=_number(metadata.get("generation")) or 0,
        order_id=order_id_of(intent),
        customer_id=metadata.get("customer_id", ""),
        placed_at=_number(metadata.get("placed_at")),
        payment_method=id_of(getattr(intent, "payment_method", None)),
        takes_cards="card" in getattr(intent, "payment_method_types", ("card",)),
        cancellation_reason=getattr(intent, "cancellation_reason", None),
        latest_charge=id_of(getattr(intent, "latest_charge", None)),
        review=id_of(getattr(intent, "review", None)),
        error_code=decline_code,
        advice_code=advice_code,
        refused_card=refused_card,
        client_secret=getattr(intent, "client_secret", None),
    )


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


def fingerprint_of(payment_method: Any) -> str | None:
    """Of its card (Stripe API reference, "The PaymentMethod object", `card.fingerprint`)."""
    return getattr(getattr(payment_method, "card", None), "fingerprint", None)


def _decline_of(intent: Any) -> tuple[str | None, str | None, str | None]:
    """Its code; the issuer's advice; the card's fingerprint, if it must not be tried again.

    An update of the PaymentIntent clears its last error. Then the latest charge says it, if it is expanded (Stripe API
    reference, "The Charge object").
    """
    error, charge = getattr(intent, "last_payment_error", None), getattr(intent, "latest_charge", None)
    if error is not None:
        reason, code = getattr(error, "decline_code", None), getattr(error, "code", None)
        advice, method = getattr(error, "advice_code", None), getattr(error, "payment_method", None)
    elif getattr(charge, "status", None) == "failed":
        outcome = getattr(charge, "outcome", None)
        reason, code = getattr(outcome, "reason", None), getattr(charge, "failure_code", None)
        advice, method = getattr(outcome, "advice_code", None), getattr(charge, "payment_method_details", None)
    else:
        return None, None, None
    # The card that replaces an expired one has the same number, and so the same fingerprint.
    is_refused = advice == DO_NOT_TRY_AGAIN and code != "expired_card"
    return reason or code, advice, fingerprint_of(method) if is_refused else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def id_of(expandable: Any) -> str | None:
    """The id of an expandable field, whether Stripe sent the id or the expanded object."""
    return expandable if expandable is None or isinstance(expandable, str) else str(expandable.id)
