"""Which kind of response an error of Stripe is.

Source: Stripe documentation, "Error handling", "Error codes".
"""

from collections.abc import Mapping
from typing import Any

import stripe

from onecharge.payments.stripe_responses import Failure, ResponseKind
from onecharge.runtime.redaction import redacted

_MESSAGE_LENGTH_MAX = 500
_AS_OURS: Mapping[str, str] = {
    "payment_method_not_available": "payment_method_unactivated",
    "payment_method_unexpected_state": "payment_method_unactivated",
    "payment_method_unsupported_type": "payment_method_unactivated",
    "payment_intent_incompatible_payment_method": "payment_method_unactivated",
    "payment_method_currency_mismatch": "currency_not_supported",
    "invalid_currency": "currency_not_supported",
}
"""Codes for which customers read the same as for another one."""
_PAYMENT_METHOD_CODES = (
    "payment_method_unactivated payment_method_customer_decline payment_method_not_available "
    "payment_method_unexpected_state payment_method_provider_decline payment_method_restricted request_blocked "
    "payment_method_currency_mismatch payment_method_unsupported_type payment_intent_incompatible_payment_method"
).split()
_AMOUNT_CODES = "amount_too_small amount_too_large currency_not_supported invalid_currency".split()
_ACCOUNT_CODES = (
    "account_closed account_invalid account_country_invalid_address api_key_expired livemode_mismatch "
    "platform_api_key_expired platform_account_required rate_limit secret_key_required testmode_charges_only "
    "not_allowed_on_standard_account charge_exceeds_transaction_limit charge_exceeds_source_limit "
    "capability_not_active tls_version_unsupported"
).split()
_BALANCE_CODES = "balance_insufficient insufficient_funds".split()
_REFUND_CODES = (
    "charge_already_refunded charge_disputed refund_disputed_payment charge_not_refundable "
    "charge_for_pending_refund_disputed"
).split()
# Stripe has no error code for a refund of more than is left: only the message says so.
_MORE_THAN_IS_LEFT = "unrefunded amount on charge", "greater than charge amount"
_LATER_CODES = ("payment_intent_rate_limit_exceeded", "lock_timeout")
"""A PaymentIntent takes 1,000 updates an hour, and one request at a time: later it takes more."""
# Stripe has no error code for these: only the message distinguishes them (Stripe API, error messages of confirm).
# Whoever has an access token can name any PaymentMethod: of another type, made with the publishable key, or one of test
# mode. That is a decline of theirs, and no alarm of ours.
_OF_TEST_MODE = "no such paymentmethod", "a similar object exists in test mode, but a live mode key"
_OF_THE_ACCOUNT = "a similar object exists in", "api version", "cannot currently make live charges"
_REFUSED_BY_MESSAGE: Mapping[str, str] = {
    "previously used": "payment_method_used",
    "is not allowed for this paymentintent": "payment_method_unactivated",
    **dict.fromkeys(
        (
            *("belongs to the customer", "belongs to a customer", "belong to the customer", "belong to a customer"),
            *("attached to the customer", "attached to a customer"),
        ),
        "payment_method_of_another_customer",
    ),
}


def classify(error: stripe.StripeError) -> Failure:
    """Which kind of response an error is. An unknown error is never classified as a decline."""
    # A 409 arrives with `error.code` None: only the body has the code.
    details: Any = error.error
    message = getattr(details, "message", None) or error.user_message
    kind, code = _kind_and_code(error, details, getattr(details, "code", None) or error.code, (message or "").lower())
    # The message may repeat what it refuses, such as a part of the API key.
    shown = redacted(message)[:_MESSAGE_LENGTH_MAX] if message else None
    return Failure(kind, _AS_OURS.get(code or "", code), shown, error.request_id)


def _kind_and_code(
    error: stripe.StripeError, details: Any, code: str | None, text: str
) -> tuple[ResponseKind, str | None]:
    status, kind = error.http_status, getattr(details, "type", None)
    if status is None or status < 400 or (kind is None and status < 500 and status not in (408, 409, 424, 429)):
        # The connection broke off during the response, or a proxy answered: Stripe's errors have a type.
        return ResponseKind.NO_ANSWER, code
    if status in (408, 409, 424, 429) or status >= 500 or code in _LATER_CODES:
        return ResponseKind.RETRYABLE, code
    if status == 402 and kind == "card_error":
        return ResponseKind.DECLINED, getattr(details, "decline_code", None) or code
    if status == 402:
        return ResponseKind.RETRYABLE, code
    if code in _BALANCE_CODES:
        return ResponseKind.BALANCE_TOO_LOW, code
    if status in (401, 403) or code in _ACCOUNT_CODES:
        return ResponseKind.ACCOUNT, code
    if kind == "api_error":
        return ResponseKind.RETRYABLE, code
    if isinstance(error, stripe.IdempotencyError) or kind == "idempotency_error":
        return ResponseKind.OTHER_PARAMETERS, code
    if code == "payment_intent_unexpected_state":
        return ResponseKind.UNEXPECTED_STATE, code
    if "you cannot use the test id" in text or all(words in text for words in _OF_TEST_MODE):
        return ResponseKind.DECLINED, "payment_method_unknown"
    if any(words in text for words in _OF_THE_ACCOUNT):
        return ResponseKind.ACCOUNT, code
    if code in _PAYMENT_METHOD_CODES:
        return ResponseKind.DECLINED, code
    if code in _AMOUNT_CODES:
        return ResponseKind.AMOUNT_REFUSED, code
    if getattr(details, "param", None) == "payment_method" and code == "resource_missing":
        return ResponseKind.DECLINED, "payment_method_unknown"
    for words, meaning in _REFUSED_BY_MESSAGE.items():
        if words in text:
            return ResponseKind.DECLINED, meaning
    if status == 404:
        # The API key may be another account's: no order is failed for it.
        return ResponseKind.NOT_FOUND, code
    if code in _REFUND_CODES or any(words in text for words in _MORE_THAN_IS_LEFT):
        return ResponseKind.REFUND_REFUSED, code
    return ResponseKind.INVALID, code
