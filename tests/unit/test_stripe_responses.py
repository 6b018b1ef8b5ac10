"""Each response of Stripe and each network failure is classified; an unrecognized one is never a decline.

The responses pass through Stripe's client, because the SDK maps errors in its own way.
"""

from typing import Any

import pytest
import requests
from responses import RequestsMock

from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_responses import Failure, ResponseKind
from tests.shop.builders import BOUNDS, INTENTS, SHOP, STRIPE_API, payment, stripe_error

Kind = ResponseKind


def confirmed(http: RequestsMock, status: int = 200, **answer: Any) -> Failure:
    """What a confirm that is answered so ends with."""
    http.post(f"{INTENTS}/pi_1/confirm", status=status, **answer)
    client = stripe_client("sk_test_x", api_base=STRIPE_API, bounds=BOUNDS)
    failure = PaymentIntents(client, SHOP).confirm(payment()).failure
    assert failure is not None
    return failure


@pytest.mark.parametrize(
    ("kind", "status", "body"),
    [
        (Kind.RETRYABLE, 408, ""),
        (Kind.RETRYABLE, 502, "<html>"),
        (Kind.NO_ANSWER, 200, "{"),
        (Kind.NO_ANSWER, 404, "<html>"),
        (Kind.NO_ANSWER, 402, "pay"),
        (Kind.NO_ANSWER, 200, requests.ConnectTimeout()),
        (Kind.NO_ANSWER, 200, requests.exceptions.SSLError()),
        (Kind.NO_ANSWER, 200, requests.exceptions.ChunkedEncodingError("closed in the middle of the body")),
    ],
)
def test_what_stripe_has_not_written_says_nothing(http: RequestsMock, kind: Kind, status: int, body: Any) -> None:
    """However the connection ends, and whatever a proxy answers: the result is unknown."""
    assert confirmed(http, status, body=body).kind is kind


USED = "This PaymentMethod was previously used without being attached to a Customer, and may not be used again."
NOT_ATTACHED = "The customer does not have a payment method … The payment method must be attached to the customer."
BELONGS = "The `payment_method` parameter supplied pm_1 belongs to the Customer cus_1. Please include the Customer …"
OF_ANOTHER_TYPE = "The PaymentMethod provided (sepa_debit) is not allowed for this PaymentIntent. Please attach …"
TEST_ID = "You cannot use the test ID 'pm_card_visa' in livemode. If you are testing your integration, please use …"
OF_TEST_MODE, OF_LIVE_MODE = (
    f"No such PaymentMethod: 'pm_1'; a similar object exists in {one} mode, but a {other} mode key was used to make "
    "this request."
    for one, other in (("test", "live"), ("live", "test"))
)
CARD: dict[str, Any] = {"type_": "card_error"}
NO_SUCH_CARD: dict[str, Any] = {"code": "resource_missing", "param": "payment_method"}
UNACTIVATED, UNKNOWN = "payment_method_unactivated", "payment_method_unknown"
PASSED_ON = {
    Kind.DECLINED: "payment_method_customer_decline payment_method_provider_decline payment_method_restricted "
    "request_blocked payment_method_unactivated",
    Kind.AMOUNT_REFUSED: "amount_too_small amount_too_large currency_not_supported",
    Kind.ACCOUNT: "testmode_charges_only charge_exceeds_source_limit capability_not_active rate_limit",
    Kind.BALANCE_TOO_LOW: "balance_insufficient insufficient_funds",
    Kind.REFUND_REFUSED: "charge_already_refunded charge_disputed refund_disputed_payment charge_not_refundable",
    Kind.UNEXPECTED_STATE: "payment_intent_unexpected_state",
    Kind.INVALID: "parameter_unknown",
}
"""Codes of a 400 that are passed on as they are."""
ANSWERS: list[tuple[Kind, str | None, int, dict[str, Any]]] = [
    *((kind, code, 400, {"code": code}) for kind, codes in PASSED_ON.items() for code in codes.split()),
    (Kind.RETRYABLE, "idempotency_key_in_use", 409, {"type_": "idempotency_error", "code": "idempotency_key_in_use"}),
    (Kind.RETRYABLE, None, 424, {"type_": "api_error"}),
    (Kind.RETRYABLE, "lock_timeout", 429, {"code": "lock_timeout"}),
    (Kind.RETRYABLE, "payment_intent_rate_limit_exceeded", 400, {"code": "payment_intent_rate_limit_exceeded"}),
    (Kind.RETRYABLE, None, 500, {"type_": "api_error"}),
    (Kind.RETRYABLE, "lock_timeout", 400, {"code": "lock_timeout"}),
    (Kind.RETRYABLE, None, 400, {"type_": "api_error"}),
    (Kind.RETRYABLE, None, 402, {"type_": "api_error"}),
    (Kind.DECLINED, "lost_card", 402, {**CARD, "code": "card_declined", "decline_code": "lost_card"}),
    (Kind.DECLINED, "expired_card", 402, {**CARD, "code": "expired_card"}),
    (Kind.DECLINED, UNKNOWN, 400, NO_SUCH_CARD),
    (Kind.DECLINED, UNKNOWN, 404, NO_SUCH_CARD),
    (Kind.DECLINED, UNKNOWN, 400, {"message": TEST_ID}),
    (Kind.DECLINED, UNKNOWN, 400, {"message": OF_TEST_MODE, **NO_SUCH_CARD}),
    (Kind.DECLINED, UNACTIVATED, 400, {"code": "payment_intent_incompatible_payment_method"}),
    (Kind.DECLINED, UNACTIVATED, 400, {"code": "payment_method_unsupported_type"}),
    (Kind.DECLINED, UNACTIVATED, 400, {"message": OF_ANOTHER_TYPE}),
    (Kind.DECLINED, "payment_method_used", 400, {"message": USED}),
    (Kind.DECLINED, "payment_method_of_another_customer", 400, {"message": NOT_ATTACHED}),
    (Kind.DECLINED, "payment_method_of_another_customer", 400, {"message": BELONGS}),
    (Kind.AMOUNT_REFUSED, "currency_not_supported", 400, {"code": "invalid_currency"}),
    (Kind.ACCOUNT, None, 401, {}),
    (Kind.ACCOUNT, None, 403, {}),
    (Kind.ACCOUNT, "resource_missing", 400, {"message": OF_LIVE_MODE, **NO_SUCH_CARD}),
    (Kind.ACCOUNT, None, 400, {"message": "Invalid Stripe API version: x"}),
    (Kind.OTHER_PARAMETERS, None, 400, {"type_": "idempotency_error"}),
    (Kind.NOT_FOUND, "resource_missing", 404, {"code": "resource_missing", "param": "intent"}),
    (Kind.REFUND_REFUSED, None, 400, {"message": "Refund amount is greater than unrefunded amount on charge"}),
    (Kind.INVALID, None, 400, {}),
]


@pytest.mark.parametrize(("kind", "code", "status", "error"), ANSWERS)
def test_each_error_is_classified(
    http: RequestsMock, kind: Kind, code: str | None, status: int, error: dict[str, Any]
) -> None:
    """Status, error type, code, param and message decide, as Stripe documents them."""
    failure = confirmed(http, status, json=stripe_error(**error), headers={"Request-Id": "req_1"})
    # A 409 has its code in the body alone.
    assert (failure.kind, failure.code, failure.request_id) == (kind, code, "req_1")
    assert failure.message == error.get("message", "…")


def test_stripes_message_is_kept_without_secrets(http: RequestsMock) -> None:
    """It may repeat what it refuses."""
    key = "sk_test_" + "51KeyOfTheAccount000"
    failure = confirmed(http, 401, json=stripe_error(message=f"Invalid API Key provided: {key}"))
    assert failure.message
    assert key not in failure.message
