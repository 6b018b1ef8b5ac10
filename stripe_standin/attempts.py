"""One payment attempt: it succeeds, is declined, requires 3-D Secure, or stays `processing`.

Source: Stripe API reference, "Confirm a PaymentIntent"; Stripe documentation, "Declines", "3D Secure authentication".
"""

from typing import Any

from stripe_standin import balance
from stripe_standin.account import Account, shown
from stripe_standin.cards import Declines, RequiresAuthentication, Succeeds
from stripe_standin.charges import Charge
from stripe_standin.disputes import open_dispute
from stripe_standin.errors import ApiError, doc_url, invalid
from stripe_standin.faults import Fault
from stripe_standin.messages import Request
from stripe_standin.parameters import boolean
from stripe_standin.payment_intents import PaymentIntent, cancel_now, emit_change, unexpected_state
from stripe_standin.payment_methods import PaymentMethod

_AUTHENTICATION_REQUIRED = Declines(
    "authentication_required",
    "authentication_required",
    "Your card was declined. This transaction requires authentication.",
    advice_code=None,
)
_IN_LAST_ERROR = {"payment_method_type": "card", "type": "card_error"}
_AUTHENTICATION_FAILED = (
    "The provided PaymentMethod has failed authentication. You can provide payment_method_data or a new PaymentMethod "
    "to attempt to fulfill this PaymentIntent again."
)


# ------------------------------------------------------------------------ the customer and the bank


def authenticate(account: Account, intent: PaymentIntent, *, succeed: bool) -> None:
    """Complete 3-D Secure, as Stripe's page in the customer's browser does."""
    if intent.status != "requires_action":
        raise invalid("This PaymentIntent does not require authentication.", code="payment_intent_unexpected_state")
    method = account.find(PaymentMethod, intent.payment_method or "")
    if succeed:
        take_money(account, intent, method)
    else:
        _fail_authentication(account, intent, method)


def finish_processing(account: Account, intent: PaymentIntent, *, succeed: bool) -> None:
    """End `processing`: the payment succeeds or is declined."""
    if intent.status != "processing":
        raise invalid("This PaymentIntent is not processing.", code="payment_intent_unexpected_state")
    method = account.find(PaymentMethod, intent.payment_method or "")
    pending = account.all(Charge)[intent.latest_charge or ""]
    if succeed:
        take_money(account, intent, method, pending=pending)
    else:
        decline(account, intent, method, Declines(), pending=pending)


# ------------------------------------------------------------------------ one attempt


def attempt(
    account: Account, intent: PaymentIntent, method: PaymentMethod, request: Request, outcome: Fault | None = None
) -> None:
    intent.confirmed_under.append(request.idempotency_key)
    if outcome is Fault.CANCELED_BY_STRIPE or len(intent.confirmed_under) > account.behavior.confirms_max:
        cancel_now(account, intent, "automatic")
        raise unexpected_state(intent, "You cannot confirm this PaymentIntent because it has a status of canceled.")
    intent.payment_method, intent.last_payment_error = method.id, None
    behavior, parameters = method.card.behavior, request.parameters
    match behavior:
        case RequiresAuthentication() if boolean(parameters, "off_session"):
            raise decline(account, intent, method, _AUTHENTICATION_REQUIRED)
        case RequiresAuthentication():
            uses_sdk = boolean(parameters, "use_stripe_sdk")
            intent.redirects_to = None if uses_sdk else parameters.get("return_url")
            intent.status = "requires_action"
            emit_change(account, intent, "requires_action")
        case _ if outcome is Fault.STAYS_PROCESSING:
            _process(account, intent, method)
        case Declines():
            raise decline(account, intent, method, behavior)
        case Succeeds():
            take_money(account, intent, method)


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
    if method.card.dispute_reason is not None:
        open_dispute(account, charge, method.card.dispute_reason)
    emit_change(account, intent, "succeeded")


def _process(account: Account, intent: PaymentIntent, method: PaymentMethod) -> None:
    charge = _new_charge(account, intent, method)
    charge.pending = True
    intent.latest_charge, intent.status = charge.id, "processing"
    account.emit("charge.pending", charge.as_json())
    emit_change(account, intent, "processing")


def decline(
    account: Account,
    intent: PaymentIntent,
    method: PaymentMethod,
    declines: Declines,
    *,
    pending: Charge | None = None,
) -> ApiError:
    """Record a failed Charge; the PaymentIntent goes back to `requires_payment_method`. Returns the 402 response.

    A decline with `authentication_required` makes no Charge, as recorded from test mode (README.md).
    """
    charge = pending
    if charge is None and declines is not _AUTHENTICATION_REQUIRED:
        charge = _new_charge(account, intent, method)
    if charge is not None:
        charge.pending, charge.declined = False, declines
        account.emit("charge.failed", charge.as_json())
    details = {
        **shown(declines, ("advice_code", "code", "decline_code", "param")),
        "charge": charge.id if charge else None,
        "doc_url": doc_url(declines.code),
        "payment_method": method.as_json(),
    }
    details = {name: value for name, value in details.items() if value is not None}
    _require_payment_method(account, intent, {**details, **_IN_LAST_ERROR, "message": declines.message}, charge)
    return ApiError(402, "card_error", declines.message, stored=True, **details, payment_intent=intent.as_json())


def _fail_authentication(account: Account, intent: PaymentIntent, method: PaymentMethod) -> None:
    code = "payment_intent_authentication_failure"
    error = {
        "code": code,
        "doc_url": doc_url(code),
        "message": _AUTHENTICATION_FAILED,
        "payment_method": method.as_json(),
        "type": "invalid_request_error",
    }
    _require_payment_method(account, intent, error, None)


def _require_payment_method(
    account: Account, intent: PaymentIntent, error: dict[str, Any], charge: Charge | None
) -> None:
    intent.status, intent.payment_method, intent.last_payment_error = "requires_payment_method", None, error
    # An attempt that made no charge leaves the one of the attempt before.
    intent.latest_charge = charge.id if charge else intent.latest_charge
    emit_change(account, intent, "payment_failed")


def _new_charge(account: Account, intent: PaymentIntent, method: PaymentMethod) -> Charge:
    charge = Charge(
        id=account.ids.new("ch"),
        payment_intent=intent.id,
        created=account.now,
        metadata=dict(intent.metadata),
        method=method,
        idempotency_key=(intent.confirmed_under or [None])[-1],
        **shown(intent, ("amount", "currency", "description", "receipt_email")),
    )
    account.all(Charge)[charge.id] = charge
    return charge
