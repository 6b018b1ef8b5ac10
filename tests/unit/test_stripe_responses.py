"""Each response of Stripe and each network failure is classified; an unrecognized one is never a decline.

The responses pass through Stripe's client, because the SDK maps errors in its own way.
"""

from typing import Any

import pytest
import requests
from responses import RequestsMock

from onecharge.payments.payment_intents import PaymentIntents, Response
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_responses import Failure, ResponseKind, is_replay
from tests.shop.builders import BOUNDS, INTENTS, SHOP, STRIPE_API, payment, stripe_error

CONFIRM = f"{INTENTS}/pi_1/confirm"
REPLAYED = {"Idempotent-Replayed": "true"}


@pytest.fixture
def intents() -> PaymentIntents:
    return PaymentIntents(stripe_client("sk_test_x", api_base=STRIPE_API, bounds=BOUNDS), SHOP)


def card_error(**details: Any) -> dict[str, Any]:
    return stripe_error("card_error", **{"code": "card_declined", **details})


def confirm(
    intents: PaymentIntents, http: RequestsMock, status: int, body: Any, headers: dict[str, str] | None = None
) -> Response:
    """Confirm, and be answered so: a body that is text is no JSON."""
    given = {"body": body} if isinstance(body, str) else {"json": body}
    http.post(CONFIRM, status=status, headers=headers, **given)
    return intents.confirm(payment())


def failure_of(response: Response) -> Failure:
    assert response.failure is not None
    return response.failure


USED_UP = (
    "The provided PaymentMethod was previously used with a PaymentIntent without Customer attachment, shared with a "
    "connected account without Customer attachment, or was detached from a Customer. It may not be used again."
)
USED_WITHOUT_CUSTOMER = (
    "This PaymentMethod was previously used without being attached to a Customer or was detached from a Customer, and "
    "may not be used again."
)
NOT_ATTACHED = (
    "The customer does not have a payment method with the ID pm_1. The payment method must be attached to the customer."
)
BELONGS = (
    "The `payment_method` parameter supplied pm_1 belongs to the Customer cus_1. Please include the Customer in the "
    "`customer` parameter on the PaymentIntent."
)
OF_ANOTHER_TYPE = (
    "The PaymentMethod provided (sepa_debit) is not allowed for this PaymentIntent. Please attach a PaymentMethod of "
    "one of the following types: card."
)
TEST_ID = (
    "You cannot use the test ID 'pm_card_visa' in livemode. If you are testing your integration, please use your "
    "testmode API keys instead."
)
OF_TEST_MODE, OF_LIVE_MODE = (
    f"No such PaymentMethod: 'pm_1'; a similar object exists in {one} mode, but a {other} mode key was used to make "
    "this request."
    for one, other in (("test", "live"), ("live", "test"))
)
LOCK_TIMEOUT = stripe_error(code="lock_timeout", message="This object cannot be accessed right now.")
NO_SUCH_CARD = {"code": "resource_missing", "param": "payment_method"}
UNACTIVATED, OF_ANOTHER_CUSTOMER = "payment_method_unactivated", "payment_method_of_another_customer"
UNKNOWN, RETRYABLE, REFUSED = ResponseKind.NO_ANSWER, ResponseKind.RETRYABLE, ResponseKind.PAYMENT_METHOD_REFUSED
AMOUNT, ACCOUNT, INVALID = ResponseKind.AMOUNT_REFUSED, ResponseKind.ACCOUNT, ResponseKind.INVALID

KINDS: dict[str, tuple[ResponseKind, str | None, int, Any]] = {
    # The result is unknown.
    "request time-out": (RETRYABLE, None, 408, ""),
    "key in use": (RETRYABLE, None, 409, stripe_error("idempotency_error", code="idempotency_key_in_use")),
    "failed dependency": (RETRYABLE, None, 424, stripe_error("api_error")),
    "rate limit": (RETRYABLE, None, 429, stripe_error(code="rate_limit")),
    "lock_timeout": (RETRYABLE, None, 429, LOCK_TIMEOUT),
    "a PaymentIntent's rate limit": (RETRYABLE, None, 400, stripe_error(code="payment_intent_rate_limit_exceeded")),
    "500": (RETRYABLE, None, 500, stripe_error("api_error")),
    "502": (RETRYABLE, None, 502, "<html>"),
    "503": (RETRYABLE, None, 503, stripe_error("api_error")),
    "504": (RETRYABLE, None, 504, ""),
    "a response that broke off": (UNKNOWN, None, 200, "{"),
    "an HTML page of a proxy": (UNKNOWN, None, 404, "<html>"),
    "a 400 of a proxy": (UNKNOWN, None, 400, "no"),
    "a 402 of a proxy": (UNKNOWN, None, 402, "pay"),
    "a 402 that is not a card error": (RETRYABLE, None, 402, stripe_error("api_error")),
    # Declines.
    "decline": (ResponseKind.DECLINED, "lost_card", 402, card_error(decline_code="lost_card")),
    "expired card": (ResponseKind.DECLINED, "expired_card", 402, card_error(code="expired_card")),
    "authentication": (
        ResponseKind.DECLINED,
        "authentication_required",
        402,
        card_error(code="authentication_required"),
    ),
    # Payment methods that are refused.
    "unknown payment method": (REFUSED, "payment_method_unknown", 400, stripe_error(**NO_SUCH_CARD)),
    "unknown payment method, as a 404": (REFUSED, "payment_method_unknown", 404, stripe_error(**NO_SUCH_CARD)),
    "of another type, by its code": (
        *(REFUSED, UNACTIVATED, 400),
        stripe_error(code="payment_intent_incompatible_payment_method", param="payment_method"),
    ),
    "of another type, by its message": (REFUSED, UNACTIVATED, 400, stripe_error(message=OF_ANOTHER_TYPE)),
    "of an unsupported type": (REFUSED, UNACTIVATED, 400, stripe_error(code="payment_method_unsupported_type")),
    "a test id in live mode": (REFUSED, "payment_method_unknown", 400, stripe_error(message=TEST_ID)),
    "of test mode in live mode": (
        *(REFUSED, "payment_method_unknown", 400),
        stripe_error(message=OF_TEST_MODE, **NO_SUCH_CARD),
    ),
    "used up": (REFUSED, "payment_method_used", 400, stripe_error(message=USED_UP)),
    "used up without a customer": (REFUSED, "payment_method_used", 400, stripe_error(message=USED_WITHOUT_CUSTOMER)),
    "of another customer": (REFUSED, OF_ANOTHER_CUSTOMER, 400, stripe_error(message=NOT_ATTACHED)),
    "belongs to a customer": (REFUSED, OF_ANOTHER_CUSTOMER, 400, stripe_error(message=BELONGS)),
    "unactivated": (REFUSED, UNACTIVATED, 400, stripe_error(code="payment_method_unactivated")),
    **{
        code: (REFUSED, code, 400, stripe_error(code=code))
        for code in (
            *("payment_method_customer_decline", "payment_method_provider_decline"),
            *("payment_method_restricted", "request_blocked"),
        )
    },
    # Amounts and currencies that are refused.
    "amount too small": (AMOUNT, "amount_too_small", 400, stripe_error(code="amount_too_small")),
    "amount too large": (AMOUNT, "amount_too_large", 400, stripe_error(code="amount_too_large")),
    "currency": (AMOUNT, "currency_not_supported", 400, stripe_error(code="invalid_currency")),
    # Our account, our API key, our request.
    "bad key": (ACCOUNT, None, 401, stripe_error()),
    "key not allowed": (ACCOUNT, None, 403, stripe_error()),
    "wrong mode": (ACCOUNT, "resource_missing", 400, stripe_error(message=OF_LIVE_MODE, **NO_SUCH_CARD)),
    "not activated": (ACCOUNT, "testmode_charges_only", 400, stripe_error(code="testmode_charges_only")),
    "a limit of the account": (
        *(ACCOUNT, "charge_exceeds_source_limit", 400),
        stripe_error(code="charge_exceeds_source_limit"),
    ),
    "a capability": (ACCOUNT, "capability_not_active", 400, stripe_error(code="capability_not_active")),
    "a rate limit in a 400": (ACCOUNT, "rate_limit", 400, stripe_error(code="rate_limit")),
    "unsupported version": (ACCOUNT, None, 400, stripe_error(message="Invalid Stripe API version: x")),
    "idempotency_error": (ResponseKind.OTHER_PARAMETERS, None, 400, stripe_error("idempotency_error")),
    "unexpected state": (
        *(ResponseKind.UNEXPECTED_STATE, "payment_intent_unexpected_state", 400),
        stripe_error(code="payment_intent_unexpected_state"),
    ),
    "no such PaymentIntent": (
        *(ResponseKind.NOT_FOUND, "resource_missing", 404),
        stripe_error(code="resource_missing", param="intent"),
    ),
    "unknown 400": (INVALID, "parameter_unknown", 400, stripe_error(code="parameter_unknown")),
    "a 400 without a code": (INVALID, None, 400, stripe_error()),
}


@pytest.mark.parametrize(("kind", "code", "status", "body"), KINDS.values(), ids=KINDS.keys())
def test_each_error_is_classified(
    intents: PaymentIntents, http: RequestsMock, kind: ResponseKind, code: str | None, status: int, body: Any
) -> None:
    """Status, error type, code, param and message decide, as Stripe documents them."""
    failure = failure_of(confirm(intents, http, status, body))
    assert failure.kind is kind
    if kind not in (ResponseKind.NO_ANSWER, ResponseKind.RETRYABLE):
        assert failure.code == code


@pytest.mark.parametrize("operation", ["create", "confirm", "cancel"])
@pytest.mark.parametrize(
    "failure",
    [
        requests.ConnectTimeout(),
        requests.ReadTimeout(),
        requests.ConnectionError("reset"),
        requests.exceptions.SSLError(),
        requests.exceptions.ChunkedEncodingError("closed in the middle of the body"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_network_failure_leaves_the_result_unknown(
    intents: PaymentIntents, http: RequestsMock, failure: Exception, operation: str
) -> None:
    """However the connection ends."""
    http.post(INTENTS if operation == "create" else f"{INTENTS}/pi_1/{operation}", body=failure)
    response = {
        "create": lambda: intents.create(payment(), 0),
        "confirm": lambda: intents.confirm(payment()),
        "cancel": lambda: intents.cancel("pi_1", "abandoned"),
    }[operation]()
    assert failure_of(response).kind is ResponseKind.NO_ANSWER
    assert response.intent is None


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (500, stripe_error("api_error"), ResponseKind.RETRYABLE),
        (429, LOCK_TIMEOUT, ResponseKind.RETRYABLE),
        (402, card_error(), ResponseKind.DECLINED),
        (400, stripe_error("idempotency_error"), ResponseKind.OTHER_PARAMETERS),
        (400, stripe_error(code="amount_too_small"), ResponseKind.AMOUNT_REFUSED),
        (403, stripe_error(), ResponseKind.ACCOUNT),
    ],
)
def test_a_replayed_failure_is_of_the_same_kind(
    intents: PaymentIntents, http: RequestsMock, status: int, body: Any, kind: ResponseKind
) -> None:
    """That it is a replay is said beside it."""
    response = confirm(intents, http, status, body, REPLAYED)
    assert (failure_of(response).kind, response.is_replay) == (kind, True)


@pytest.mark.parametrize(
    ("headers", "replayed"),
    [
        (None, False),
        ({}, False),
        ({"Idempotent-Replayed": "false"}, False),
        ({"IDEMPOTENT-REPLAYED": "true"}, True),
    ],
)
def test_header_names_are_case_insensitive(headers: dict[str, str] | None, replayed: bool) -> None:
    """Only the value `true` marks a replay."""
    assert is_replay(headers) is replayed


@pytest.mark.parametrize("headers", [{}, REPLAYED])
@pytest.mark.parametrize(
    ("code", "is_of_amount"),
    [
        ("amount_too_small", True),
        ("amount_too_large", True),
        ("currency_not_supported", True),
        ("invalid_currency", True),
        ("parameter_unknown", False),
        ("card_declined", False),
    ],
)
def test_a_refusal_of_the_amount_or_the_currency_says_so(
    intents: PaymentIntents, http: RequestsMock, code: str, headers: dict[str, str], *, is_of_amount: bool
) -> None:
    """Now, or as a replay: no key can create the PaymentIntent, so the order is canceled."""
    assert failure_of(confirm(intents, http, 400, stripe_error(code=code), headers)).is_of_amount is is_of_amount


def test_a_refused_request_contains_message_and_request_id(intents: PaymentIntents, http: RequestsMock) -> None:
    """The person who reviews it needs both."""
    body = stripe_error(message="Received unknown parameter: x", code="parameter_unknown")
    failure = failure_of(confirm(intents, http, 400, body, {"Request-Id": "req_1"}))
    assert (failure.message, failure.request_id) == ("Received unknown parameter: x", "req_1")
