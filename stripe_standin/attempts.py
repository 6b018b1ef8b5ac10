"""One payment attempt: it succeeds, is declined, requires 3-D Secure, or stays `processing`.

Source: Stripe API reference, "Confirm a PaymentIntent"; Stripe documentation, "Declines", "3D Secure authentication".
"""

from typing import Any

from stripe_standin import balance
from stripe_standin.account import Account, shown
from stripe_standin.cards import Declines
from stripe_standin.charges import Charge
from stripe_standin.errors import ApiError, doc_url, invalid
from stripe_standin.faults import Fault
from stripe_standin.messages import Request
from stripe_standin.payment_intents import PaymentIntent, cancel_now, emit_change, unexpected_state
from stripe_standin.payment_methods import PaymentMethod

_AUTHENTICATION_FAILED = (
    "The provided PaymentMethod has failed authentication. You can provide payment_method_data or a new PaymentMethod "
    "to attempt to fulfill this PaymentIntent again."
)


def attempt(
    account: Account, intent: PaymentIntent, method: PaymentMethod, request: Request, outcome: Fault | None = None
) -> None:
    intent.confirmed_under = request.idempotency_key
    if outcome is Fault.CANCELED_BY_STRIPE:
        cancel_now(account, intent, "automatic")
        raise unexpected_state(intent, "You cannot confirm this PaymentIntent because it has a status of canceled.")
    intent.payment_method, intent.last_payment_error = method.id, None
    if method.card.asks_customer:
        intent.status = "requires_action"
        emit_change(account, intent, "requires_action")
    elif outcome is Fault.STAYS_PROCESSING:
        charge = _new_charge(account, intent, method)
        charge.pending = True
        intent.latest_charge, intent.status = charge.id, "processing"
        account.emit("charge.pending", charge.as_json())
        emit_change(account, intent, "processing")
    elif method.card.declines:
        raise decline(account, intent, method, method.card.declines)
    else:
        take_money(account, intent, method)


def decide(account: Account, intent: PaymentIntent, *, succeed: bool) -> None:
    """The customer completes 3-D Secure or fails it; or the bank decides about a payment that is `processing`."""
    if intent.status not in ("requires_action", "processing"):
        raise invalid(f"This PaymentIntent is {intent.status}.", code="payment_intent_unexpected_state")
    method = account.find(PaymentMethod, intent.payment_method or "")
    pending = account.all(Charge)[intent.latest_charge or ""] if intent.status == "processing" else None
    if succeed:
        take_money(account, intent, method, pending=pending)
    elif pending:
        decline(account, intent, method, Declines(), pending=pending)
    else:
        code = "payment_intent_authentication_failure"
        error = {"type": "invalid_request_error", "code": code, "message": _AUTHENTICATION_FAILED}
        given = {"doc_url": doc_url(code), "payment_method": method.as_json()}
        _require_payment_method(account, intent, {**error, **given})


def take_money(
    account: Account, intent: PaymentIntent, method: PaymentMethod, *, pending: Charge | None = None
) -> None:
    """Take the money. Nothing else does."""
    charge = pending or _new_charge(account, intent, method)
    charge.pending = False
    balance.book(account, "charge", charge.id, charge.amount, charge.currency)
    account.ledger.append(charge.id)
    intent.latest_charge, intent.status = charge.id, "succeeded"
    method.used_up = not method.is_attached
    account.emit("charge.succeeded", charge.as_json())
    emit_change(account, intent, "succeeded")


def decline(
    account: Account,
    intent: PaymentIntent,
    method: PaymentMethod,
    declines: Declines,
    *,
    pending: Charge | None = None,
) -> ApiError:
    """Record a failed Charge; the PaymentIntent goes back to `requires_payment_method`. Returns the 402 response."""
    charge = pending or _new_charge(account, intent, method)
    charge.pending, charge.declined = False, declines
    account.emit("charge.failed", charge.as_json())
    given = shown(declines, ("advice_code", "code", "decline_code"))
    details = {name: value for name, value in given.items() if value is not None}
    details |= {"charge": charge.id, "doc_url": doc_url(declines.code), "payment_method": method.as_json()}
    intent.latest_charge = charge.id
    of_card = {"payment_method_type": "card", "type": "card_error", "message": declines.message}
    _require_payment_method(account, intent, {**details, **of_card})
    return ApiError(402, "card_error", declines.message, stored=True, **details, payment_intent=intent.as_json())


def _require_payment_method(account: Account, intent: PaymentIntent, error: dict[str, Any]) -> None:
    intent.status, intent.payment_method, intent.last_payment_error = "requires_payment_method", None, error
    emit_change(account, intent, "payment_failed")


def _new_charge(account: Account, intent: PaymentIntent, method: PaymentMethod) -> Charge:
    charge = Charge(
        id=account.ids.new("ch"),
        payment_intent=intent.id,
        created=account.now,
        metadata=dict(intent.metadata),
        method=method,
        idempotency_key=intent.confirmed_under,
        **shown(intent, ("amount", "currency", "description", "receipt_email")),
    )
    account.all(Charge)[charge.id] = charge
    return charge
