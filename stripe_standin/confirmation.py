"""Create and confirm a PaymentIntent: validation of the request, then one attempt.

Source: Stripe API reference, "Create a PaymentIntent", "Confirm a PaymentIntent".
"""

from collections.abc import Mapping
from typing import Any

from stripe_standin import payment_methods
from stripe_standin.account import Account
from stripe_standin.amounts import amount_to_charge, currency_of
from stripe_standin.attempts import attempt, decide
from stripe_standin.errors import invalid, missing
from stripe_standin.faults import Fault
from stripe_standin.messages import Request
from stripe_standin.parameters import METADATA, allow, boolean, metadata_of, values
from stripe_standin.payment_intents import PaymentIntent, emit_change, unexpected_state
from stripe_standin.payment_methods import PaymentMethod

CONFIRMABLE = ("requires_payment_method", "requires_confirmation", "requires_action")

_CONFIRM = "payment_method|use_stripe_sdk"
_CREATE = "amount|currency|confirm|description|receipt_email|statement_descriptor_suffix"
_TYPES = r"(allowed_)?payment_method_types\[\d*\]"
_SUCCEEDED = "You cannot confirm this PaymentIntent because it has already succeeded after being previously confirmed."
_NOT_CONFIRMABLE = (
    "You cannot confirm this PaymentIntent because it has a status of {}. Only a PaymentIntent with one of the "
    f"following statuses may be confirmed: {', '.join(CONFIRMABLE)}."
)
_NO_PAYMENT_METHOD = (
    "You cannot confirm this PaymentIntent because it's missing a payment method. You can either update the "
    "PaymentIntent with a payment method and then confirm it again, or confirm it again directly with a payment "
    "method or ConfirmationToken."
)


def create(account: Account, request: Request, *, outcome: Fault | None = None) -> dict[str, Any]:
    """POST /v1/payment_intents, with `confirm` or without."""
    parameters = allow(request, _CREATE, _TYPES, _CONFIRM, METADATA)
    confirm_now = boolean(parameters, "confirm")
    intent = _parse(account, parameters)
    method = None
    if "payment_method" in parameters:
        method = payment_methods.resolve(account, parameters["payment_method"])
        payment_methods.check_usable(method, None)
        intent.payment_method, intent.status = method.id, "requires_confirmation"
    if confirm_now:
        _check_confirmable(intent, method, parameters)
    # Validation ends here: from now on every response is stored under the key.
    intent.id = account.ids.new("pi")
    account.all(PaymentIntent)[intent.id] = intent
    emit_change(account, intent, "created")
    if confirm_now and method is not None:
        attempt(account, intent, method, request, outcome)
    return intent.as_json()


def confirm(account: Account, request: Request, identifier: str, *, outcome: Fault | None = None) -> dict[str, Any]:
    """POST /v1/payment_intents/{id}/confirm, with the payment method of the request or the PaymentIntent's own."""
    parameters = allow(request, _CONFIRM)
    intent = account.find(PaymentIntent, identifier)
    if intent.status not in CONFIRMABLE:
        succeeded = intent.status == "succeeded"
        raise unexpected_state(intent, _SUCCEEDED if succeeded else _NOT_CONFIRMABLE.format(intent.status))
    named = parameters.get("payment_method") or intent.payment_method
    method = payment_methods.resolve(account, named) if named else None
    method = _check_confirmable(intent, method, parameters)
    payment_methods.check_usable(method, intent.as_json())
    attempt(account, intent, method, request, outcome)
    return intent.as_json()


def challenge(account: Account, request: Request, identifier: str) -> dict[str, Any]:
    """The customer's answer to 3-D Secure, which the stub of Stripe.js sends. Stripe's own endpoint is not public."""
    parameters = allow(request, "client_secret|succeed")
    intent = account.find(PaymentIntent, identifier)
    if parameters.get("client_secret") != intent.client_secret:
        raise missing("payment_intent", identifier, "intent")
    decide(account, intent, succeed=boolean(parameters, "succeed"))
    return intent.as_json()


# ------------------------------------------------------------------------ validation


def _parse(account: Account, parameters: Mapping[str, str]) -> PaymentIntent:
    if values(parameters, "payment_method_types"):  # Since 2026-09-30.endive (Stripe's changelog).
        text, code = "The parameter is no longer supported.", "payment_method_types_no_longer_supported"
        raise invalid(text, param="payment_method_types", code=code)
    if values(parameters, "allowed_payment_method_types") != ["card"]:
        text = "The stand-in supports cards only: send `allowed_payment_method_types[]=card`."
        raise invalid(text, param="allowed_payment_method_types")
    currency = currency_of(parameters)
    return PaymentIntent(
        id="",
        amount=amount_to_charge(parameters, currency),
        currency=currency,
        created=account.received_at,
        metadata=metadata_of(parameters),
        description=parameters.get("description"),
        receipt_email=parameters.get("receipt_email"),
        statement_descriptor_suffix=parameters.get("statement_descriptor_suffix"),
        payment_method_types=["card"] if account.behavior.takes_cards else [],
    )


def _check_confirmable(
    intent: PaymentIntent, method: PaymentMethod | None, parameters: Mapping[str, str]
) -> PaymentMethod:
    """Returns the payment method; raises ApiError if it is missing, or if the account takes no cards."""
    boolean(parameters, "use_stripe_sdk")
    if method is None and intent.id:
        raise unexpected_state(intent, _NO_PAYMENT_METHOD)
    if method is None:
        raise invalid(_NO_PAYMENT_METHOD, code="payment_intent_unexpected_state")
    if not intent.payment_method_types:
        raise invalid("No card is allowed.", code="payment_intent_incompatible_payment_method", param="payment_method")
    return method
