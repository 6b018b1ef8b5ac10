"""The gateway turns what Stripe says over HTTP into the protocol's answers; nothing unknown becomes a decline."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import requests
import responses

from onecharge.events import OrderPlaced
from onecharge.payments.protocol import Answer, FrozenRequest, Reply
from onecharge.payments.stripe_gateway import StripeGateway, stripe_client
from onecharge.payments.time_bounds import TimeBounds

BASE = "https://stripe.example"
REQUEST = FrozenRequest.of(
    OrderPlaced(
        order_id="ord_" + "a" * 32,
        attempt=1,
        customer_id="cus_1",
        amount_minor=1099,
        currency="EUR",
        payment_method="pm_card_visa",
        placed_at=datetime(2026, 11, 1, tzinfo=UTC),
    )
)


@pytest.fixture
def stripe_api() -> Any:
    with responses.RequestsMock() as mock:
        yield mock


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> StripeGateway:
    # The SDK pauses between its tries; a test need not.
    monkeypatch.setattr("stripe.HTTPClient.INITIAL_DELAY", 0)
    monkeypatch.setattr("stripe.HTTPClient.MAX_DELAY", 0)
    return StripeGateway(stripe_client("sk_test_x", api_base=BASE, bounds=TimeBounds.of(30)))


def intent(**changes: Any) -> dict[str, Any]:
    return {
        "id": "pi_1",
        "object": "payment_intent",
        "amount": 1099,
        "currency": "eur",
        "status": "succeeded",
        "last_payment_error": None,
        "metadata": {"order_id": REQUEST.order_id, "attempt": "1"},
        **changes,
    }


def error(type_: str, **details: Any) -> dict[str, Any]:
    return {"error": {"type": type_, "message": "…", **details}}


DECLINED = intent(
    status="requires_payment_method",
    last_payment_error={"type": "card_error", "code": "card_declined", "decline_code": "insufficient_funds"},
)
CARD_ERROR = error("card_error", code="card_declined", decline_code="insufficient_funds", payment_intent=DECLINED)
SCA = error("card_error", code="authentication_required", payment_intent=DECLINED)

# An expired card has an error code and no decline code; a minimal answer leaves out all that may be null.
EXPIRED = intent(status="requires_payment_method", last_payment_error={"type": "card_error", "code": "expired_card"})
EXPIRED_CARD = error("card_error", code="expired_card", payment_intent=EXPIRED)
MINIMAL = {name: value for name, value in intent().items() if name not in ("last_payment_error", "metadata")}

ANSWERS: dict[str, tuple[int, Any, Reply]] = {
    "succeeded": (200, intent(), Reply(Answer.SUCCEEDED, "pi_1")),
    "requires_action": (200, intent(status="requires_action"), Reply(Answer.REQUIRES_ACTION, "pi_1")),
    "processing": (200, intent(status="processing"), Reply(Answer.PROCESSING, "pi_1")),
    "another amount": (200, intent(amount=1), Reply(Answer.OTHER_AMOUNT, "pi_1")),
    "decline": (402, CARD_ERROR, Reply(Answer.DECLINED, "pi_1", "insufficient_funds")),
    "authentication_required": (402, SCA, Reply(Answer.REQUIRES_ACTION, "pi_1", "authentication_required")),
    "expired card": (402, EXPIRED_CARD, Reply(Answer.DECLINED, "pi_1", "expired_card")),
    "a decline without its intent": (
        402,
        error("card_error", code="card_declined"),
        Reply(Answer.DECLINED, None, "card_declined"),
    ),
    "minimal": (200, MINIMAL, Reply(Answer.SUCCEEDED, "pi_1")),
    "idempotency_error": (400, error("idempotency_error"), Reply(Answer.OTHER_REQUEST)),
    "invalid request": (
        400,
        error("invalid_request_error", code="resource_missing"),
        Reply(Answer.REFUSED, code="resource_missing"),
    ),
    "a 402 that is no card error": (402, {}, Reply(Answer.SERVER_ERROR)),
    "a page of a proxy": (404, "<html>", Reply(Answer.NO_ANSWER)),
    "no such endpoint": (404, error("invalid_request_error"), Reply(Answer.REFUSED)),
    "request timeout": (408, "", Reply(Answer.NO_ANSWER)),
    "bad key": (401, error("invalid_request_error"), Reply(Answer.BAD_API_KEY)),
    "key not allowed": (403, error("invalid_request_error"), Reply(Answer.BAD_API_KEY)),
    "key in use": (
        409,
        error("invalid_request_error", code="idempotency_key_in_use"),
        Reply(Answer.KEY_IN_USE),
    ),
    "rate limit": (429, error("invalid_request_error", code="rate_limit"), Reply(Answer.RATE_LIMITED)),
    "server error": (500, error("api_error"), Reply(Answer.SERVER_ERROR)),
    "bad gateway": (502, {}, Reply(Answer.SERVER_ERROR)),
    "an answer that broke off": (200, "…", Reply(Answer.NO_ANSWER)),
    "unavailable": (503, error("api_error"), Reply(Answer.UNAVAILABLE)),
}


@pytest.mark.parametrize(("status", "body", "reply"), ANSWERS.values(), ids=ANSWERS.keys())
def test_what_stripe_answers(
    gateway: StripeGateway, stripe_api: responses.RequestsMock, status: int, body: Any, reply: Reply
) -> None:
    """Each status and error code, as Stripe's documentation gives them."""
    stripe_api.post(
        f"{BASE}/v1/payment_intents", status=status, body=body if isinstance(body, str) else json.dumps(body)
    )
    assert gateway.charge(REQUEST, "charge:1") == reply


@pytest.mark.parametrize("failure", [requests.ConnectionError(), requests.ReadTimeout(), requests.ConnectTimeout()])
def test_no_answer_is_no_answer(gateway: StripeGateway, stripe_api: responses.RequestsMock, failure: Exception) -> None:
    """A network that fails says nothing about the charge."""
    stripe_api.post(f"{BASE}/v1/payment_intents", body=failure)
    assert gateway.charge(REQUEST, "charge:1") == Reply(Answer.NO_ANSWER)


def test_every_try_carries_the_same_key_and_body(gateway: StripeGateway, stripe_api: responses.RequestsMock) -> None:
    """The SDK's own retry included: that is what makes it one charge."""
    stripe_api.post(f"{BASE}/v1/payment_intents", body=requests.ConnectionError())
    stripe_api.post(f"{BASE}/v1/payment_intents", json=intent())
    assert gateway.charge(REQUEST, "charge:1") == Reply(Answer.SUCCEEDED, "pi_1")
    sent = [(call.request.headers["Idempotency-Key"], call.request.body) for call in stripe_api.calls]
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert sent[0][0] == "charge:1"


def test_the_request_is_the_frozen_one(gateway: StripeGateway, stripe_api: responses.RequestsMock) -> None:
    """Amount in minor units, currency in lower case, and metadata by which the charge is found again."""
    expected = {
        "amount": "1099",
        "currency": "eur",
        "payment_method": "pm_card_visa",
        "confirm": "true",
        "automatic_payment_methods[enabled]": "true",
        "automatic_payment_methods[allow_redirects]": "never",
        "metadata[order_id]": REQUEST.order_id,
        "metadata[attempt]": "1",
        "metadata[customer_id]": "cus_1",
    }
    stripe_api.post(
        f"{BASE}/v1/payment_intents",
        json=intent(),
        match=[responses.matchers.urlencoded_params_matcher(expected)],
    )
    gateway.charge(REQUEST, "charge:1")
    assert json.loads(REQUEST.parameters_json)["amount"] == 1099
