"""What Stripe answers: a PaymentIntent as Stripe shows it, or a failure, which is classified.

Source: Stripe documentation, "Error handling", "Error codes", "Idempotent requests".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import stripe

from onecharge.contract.money import is_returned
from onecharge.contract.refund_events import is_refundable_despite
from onecharge.runtime.alarms import Cause
from onecharge.runtime.redaction import redacted

_MESSAGE_LENGTH_MAX = 500


class Deferred(Exception):
    """Nothing more can be done now: the message or the event is delivered again, and the log says why.

    Args:
        alarm: why a person has to see it, if waiting does not help.
        kept: attributes to write to the row with it, such as Stripe's error message.
    """

    def __init__(self, why: str, *, alarm: Cause | None = None, kept: Mapping[str, str | int] | None = None) -> None:
        super().__init__(why)
        self.why, self.alarm, self.kept = why, alarm, kept or {}


# ---------------------------------------------------------------- a PaymentIntent


class Dispute(NamedTuple):
    """A charge's dispute."""

    dispute_id: str
    status: str

    @property
    def needs_response(self) -> bool:
        """Whether Stripe is waiting for our evidence in a dispute, an inquiry or an appeal."""
        return self.status.endswith("needs_response")

    @property
    def took_nothing(self) -> bool:
        """Whether it left the money with us."""
        return is_refundable_despite(self.status)

    @staticmethod
    def that_counts(newest_first: "Iterable[Dispute]") -> "Dispute | None":
        """The newest of a payment's disputes, preferring those that take or took money."""
        return min(newest_first, key=lambda each: each.took_nothing, default=None)


@dataclass(frozen=True)
class StripeIntent:
    """A PaymentIntent, as Stripe shows it."""

    payment_intent_id: str
    status: str
    amount_minor: int
    currency: str
    shop: str = ""
    """The shop, order and customer in its metadata; empty or None for a PaymentIntent that is not ours."""
    order_id: str | None = None
    customer_id: str = ""
    is_described: bool = False
    """Whether the description names the same order: a person may have edited the metadata of another order's."""
    created: int = 0
    """Epoch seconds, by Stripe's clock."""
    takes_cards: bool = True
    """False: card payments are not active for the account, and Stripe has filtered them out silently."""
    cancellation_reason: str | None = None
    error_code: str | None = None
    """The decline or error code of the last error, or of the latest charge if an update cleared that error."""
    charged_at: int | None = None
    """When its latest charge was made, if it is expanded; epoch seconds."""
    amount_refunded_minor: int = 0
    is_disputed: bool = False
    dispute: Dispute | None = None
    """The dispute that counts, if it was read."""
    client_secret: str | None = field(default=None, repr=False)

    @property
    def is_open(self) -> bool:
        """Whether it can still be confirmed or canceled."""
        return self.status in ("requires_payment_method", "requires_confirmation", "requires_action")

    @property
    def is_returned(self) -> bool:
        return is_returned(self.amount_minor, self.amount_refunded_minor, self.dispute and self.dispute.status)

    @property
    def money(self) -> tuple[int, str]:
        return self.amount_minor, self.currency


# ---------------------------------------------------------------- a failure


class ResponseKind(StrEnum):
    """The kinds of response other than the requested object, replayed or not."""

    NO_ANSWER = "no answer: a time-out, a dropped connection, a proxy's page"
    OTHER_OBJECT = "an answer about another object: metadata that no create of ours has sent, or another id"
    RETRYABLE = "Stripe cannot do it now: 408, 409, 424, 429, 5xx, another 402, a PaymentIntent's own rate limit"
    DECLINED = (
        "402 card_error, or a payment method that is unknown, used up, restricted, blocked or of another customer"
    )
    AMOUNT_REFUSED = "an amount below Stripe's minimum or above its maximum, or a currency that it does not take"
    REFUND_REFUSED = "charge_already_refunded, charge_disputed, or more than is left to refund"
    BALANCE_TOO_LOW = "our balance is too low"
    UNEXPECTED_STATE = "400 payment_intent_unexpected_state"
    OTHER_PARAMETERS = "400 idempotency_error: the key was used with other parameters"
    ACCOUNT = "401, 403, wrong mode, account or cards not activated, its limits, its version, a rate limit in a 400"
    NOT_FOUND = "404 of the object itself"
    INVALID = "another 4xx"


_ALARMS: Mapping[ResponseKind, Cause] = {
    ResponseKind.OTHER_OBJECT: Cause.STRIPE_INCONCLUSIVE,
    ResponseKind.ACCOUNT: Cause.STRIPE_ACCOUNT,
    # The API key may be another account's.
    ResponseKind.NOT_FOUND: Cause.STRIPE_ACCOUNT,
    ResponseKind.AMOUNT_REFUSED: Cause.REQUEST_REFUSED,
    ResponseKind.REFUND_REFUSED: Cause.REQUEST_REFUSED,
    ResponseKind.OTHER_PARAMETERS: Cause.REQUEST_REFUSED,
    ResponseKind.INVALID: Cause.REQUEST_REFUSED,
}


@dataclass(frozen=True)
class Failure:
    """A response other than the requested object."""

    kind: ResponseKind
    code: str | None = None
    """Stripe's decline code, or its error code."""
    message: str | None = None
    request_id: str | None = None

    @property
    def alarm(self) -> Cause | None:
        """Why a person has to see it, if waiting does not help."""
        return _ALARMS.get(self.kind)

    @property
    def deferred(self) -> Deferred:
        """What ends the work on a delivery or an event; the row keeps what Stripe said."""
        given = {"stripe_message": self.message, "stripe_request_id": self.request_id}
        return Deferred(self.kind, alarm=self.alarm, kept={name: value for name, value in given.items() if value})


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
_RATE_LIMIT_OF_A_PAYMENT_INTENT = "payment_intent_rate_limit_exceeded"
"""It takes 1,000 updates an hour: later it takes more."""
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


def is_replay(headers: Mapping[str, str] | None) -> bool:
    """Whether a response is the stored one of an earlier request under the same idempotency key."""
    given = {name.lower(): value for name, value in (headers or {}).items()}
    return given.get("idempotent-replayed") == "true"


def is_replayed(made: Any) -> bool:
    """The same of an object that the SDK returned."""
    response = getattr(made, "last_response", None)
    return is_replay(response.headers) if response is not None else False


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
    if status in (408, 409, 424, 429) or status >= 500 or code == _RATE_LIMIT_OF_A_PAYMENT_INTENT:
        return ResponseKind.RETRYABLE, code
    if status == 402 and kind == "card_error":
        return ResponseKind.DECLINED, getattr(details, "decline_code", None) or code
    if status == 402:
        return ResponseKind.RETRYABLE, code
    if code in _BALANCE_CODES:
        return ResponseKind.BALANCE_TOO_LOW, code
    if status in (401, 403) or code in _ACCOUNT_CODES:
        return ResponseKind.ACCOUNT, code
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
