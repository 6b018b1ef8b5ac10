"""What an error of Stripe's, or of the network before it, means: one table for charges and refunds.

Source: Stripe documentation, "Error handling", "Error codes", "Idempotent requests".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any

import stripe

IDEMPOTENT_REPLAYED = "idempotent-replayed"


class ResponseKind(StrEnum):
    """Everything that is not the object that was asked for."""

    NO_ANSWER = "no answer: a time-out, a dropped connection, a proxy's page"
    RETRYABLE = "409, 424, 429, 500, 502, 503, 504"
    STORED_FAILURE = "any of these with Idempotent-Replayed: the key is answered so for ever"
    DECLINED = "402 card_error"
    PAYMENT_METHOD_REFUSED = "a payment method that is unknown, used up, unactivated or of another customer"
    AMOUNT_REFUSED = "an amount below Stripe's minimum or above its maximum, or a currency that it does not take"
    UNEXPECTED_STATE = "400 payment_intent_unexpected_state"
    OTHER_PARAMETERS = "400 idempotency_error: the key was used with other parameters"
    ACCOUNT = "401, 403, wrong mode, account not activated, unsupported version, a rate limit in a 400"
    NOT_FOUND = "404 of the object itself"
    INVALID = "another 4xx"


class NextAction(Enum):
    """What follows from it."""

    RETRY = auto()
    """The result is unknown: release the row, and back off."""
    RETRIEVE = auto()
    """The object decides, not the answer."""
    DECLINE = auto()
    """Finalize as DECLINED, with a code that a shop can show: another card is another attempt."""
    LOOK_UP = auto()
    """Find everything that there is of the order first."""
    REFUSE = auto()
    """No retry mends it, unless we do: wait an hour with an alarm, then NEEDS_REVIEW."""


@dataclass(frozen=True)
class Rule:
    """What one kind of response means for a charge."""

    action: NextAction
    alarm: bool = False


RULES: Mapping[ResponseKind, Rule] = {
    ResponseKind.NO_ANSWER: Rule(NextAction.RETRY),
    ResponseKind.RETRYABLE: Rule(NextAction.RETRY),
    ResponseKind.STORED_FAILURE: Rule(NextAction.RETRIEVE),
    ResponseKind.DECLINED: Rule(NextAction.RETRIEVE),
    ResponseKind.PAYMENT_METHOD_REFUSED: Rule(NextAction.DECLINE),
    ResponseKind.AMOUNT_REFUSED: Rule(NextAction.DECLINE),
    ResponseKind.UNEXPECTED_STATE: Rule(NextAction.RETRIEVE),
    ResponseKind.OTHER_PARAMETERS: Rule(NextAction.LOOK_UP, alarm=True),
    ResponseKind.ACCOUNT: Rule(NextAction.RETRY, alarm=True),
    ResponseKind.NOT_FOUND: Rule(NextAction.RETRY, alarm=True),
    ResponseKind.INVALID: Rule(NextAction.REFUSE, alarm=True),
}
"""docs/protocol.md shows the same table, and a test holds the two against each other."""


@dataclass(frozen=True)
class Failure:
    """A response that is not the object that was asked for."""

    kind: ResponseKind
    code: str | None = None
    """Stripe's decline code, or its error code."""
    message: str | None = None
    request_id: str | None = None
    payment_intent: Any = field(default=None, repr=False)
    """The PaymentIntent inside the error, as the SDK shows it, client secret and all."""


_PAYMENT_METHOD_CODES: Mapping[str, str] = {
    "payment_method_unactivated": "payment_method_unactivated",
    "payment_method_customer_decline": "payment_method_of_another_customer",
    "payment_method_not_available": "payment_method_unactivated",
    "payment_method_unexpected_state": "payment_method_unactivated",
    "payment_method_provider_decline": "payment_method_unactivated",
    "payment_method_currency_mismatch": "currency_not_supported",
}
_AMOUNT_CODES = {
    "amount_too_small": "amount_too_small",
    "amount_too_large": "amount_too_large",
    "currency_not_supported": "currency_not_supported",
    "invalid_currency": "currency_not_supported",
}
_ACCOUNT_CODES = frozenset(
    (
        "account_closed account_invalid account_country_invalid_address api_key_expired livemode_mismatch "
        "platform_api_key_expired platform_account_required rate_limit secret_key_required testmode_charges_only "
        "not_allowed_on_standard_account charge_exceeds_transaction_limit tls_version_unsupported"
    ).split()
)
# Stripe gives no code of its own to these two; its texts say which they are (stripe API, error messages of confirm).
_USED_UP = "previously used"
_OF_THE_ACCOUNT = "a similar object exists in", "api version", "cannot currently make live charges"
_OF_ANOTHER_CUSTOMER = (
    *("belongs to the customer", "belongs to a customer", "belong to the customer", "belong to a customer"),
    *("attached to the customer", "attached to a customer"),
)


def is_replay(headers: Mapping[str, str] | None) -> bool:
    """Whether an answer is the stored one of an earlier request under the same key."""
    given = {name.lower(): value for name, value in (headers or {}).items()}
    return given.get(IDEMPOTENT_REPLAYED) == "true"


def classify(error: stripe.StripeError) -> Failure:
    """Which kind of response an error is. What is not recognized is never taken for a decline."""
    # A 409 arrives with `error.code` None; the code stands in the body alone.
    details: Any = error.error
    code = getattr(details, "code", None) or error.code
    kind, code = _kind_and_code(error, details, code)
    return Failure(
        kind,
        code=code,
        message=getattr(details, "message", None) or error.user_message,
        request_id=error.request_id,
        payment_intent=getattr(details, "payment_intent", None),
    )


def _kind_and_code(error: stripe.StripeError, details: Any, code: str | None) -> tuple[ResponseKind, str | None]:
    status, kind = error.http_status, getattr(details, "type", None)
    if status is None or status < 400 or (kind is None and status < 500 and status not in (408, 409, 424, 429)):
        # An answer that broke off says that there was one, and not which; one without a type is none of Stripe's.
        return ResponseKind.NO_ANSWER, code
    if status in (408, 409, 424, 429) or status >= 500:
        return (ResponseKind.STORED_FAILURE if is_replay(error.headers) else ResponseKind.RETRYABLE), code
    if status == 402 and kind == "card_error":
        return ResponseKind.DECLINED, getattr(details, "decline_code", None) or code
    if status == 402:
        return (ResponseKind.STORED_FAILURE if is_replay(error.headers) else ResponseKind.RETRYABLE), code
    if status in (401, 403) or code in _ACCOUNT_CODES:
        return ResponseKind.ACCOUNT, code
    if isinstance(error, stripe.IdempotencyError) or kind == "idempotency_error":
        return ResponseKind.OTHER_PARAMETERS, code
    return _kind_of_refusal(error, details, code)


def _kind_of_refusal(error: stripe.StripeError, details: Any, code: str | None) -> tuple[ResponseKind, str | None]:
    """A 400 or 404: the payment method's fault, the amount's, ours, or the object is not there."""
    text = (getattr(details, "message", None) or error.user_message or "").lower()
    param = getattr(details, "param", None)
    if code == "payment_intent_unexpected_state":
        return ResponseKind.UNEXPECTED_STATE, code
    if any(words in text for words in _OF_THE_ACCOUNT):
        return ResponseKind.ACCOUNT, code
    if code is not None and code in _PAYMENT_METHOD_CODES:
        return ResponseKind.PAYMENT_METHOD_REFUSED, _PAYMENT_METHOD_CODES[code]
    if code is not None and code in _AMOUNT_CODES:
        return ResponseKind.AMOUNT_REFUSED, _AMOUNT_CODES[code]
    if param == "payment_method" and code == "resource_missing":
        return ResponseKind.PAYMENT_METHOD_REFUSED, "payment_method_unknown"
    if _USED_UP in text:
        return ResponseKind.PAYMENT_METHOD_REFUSED, "payment_method_used"
    if any(words in text for words in _OF_ANOTHER_CUSTOMER):
        return ResponseKind.PAYMENT_METHOD_REFUSED, "payment_method_of_another_customer"
    if error.http_status == 404:
        # The account's key may be another account's: no order is failed for it.
        return ResponseKind.NOT_FOUND, code
    return ResponseKind.INVALID, code
