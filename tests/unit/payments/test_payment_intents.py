"""The requests for PaymentIntents, with their bodies and keys, and what is read from the responses."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from responses import RequestsMock

from onecharge.payments.disputes import Dispute
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_responses import ResponseKind, StripeIntent
from tests.shop.builders import (
    BOUNDS,
    INTENTS,
    ORDER_ID,
    SHOP,
    STRIPE_API,
    T0,
    intent,
    metadata,
    payment,
    stripe_error,
    stripe_intent,
)
from tests.shop.tools import tools_of

ONE = f"{INTENTS}/pi_1"


@pytest.fixture
def intents() -> PaymentIntents:
    return PaymentIntents(stripe_client("sk_test_x", api_base=STRIPE_API, bounds=BOUNDS), SHOP)


CREATE = {
    "amount": "1099",
    "currency": "eur",
    "allowed_payment_method_types[0]": "card",
    "metadata[shop]": SHOP,
    "metadata[order_id]": ORDER_ID,
    "metadata[customer_id]": "cus_1",
    "description": f"Order {ORDER_ID}",
    "statement_descriptor_suffix": "ORD AAAAAA",
}
"""Without confirm, for cards only, and the same for each attempt: Stripe compares the parameters under one key."""
LATER = {"attempt": 2, "payment_method": "pm_2", "correlation_id": "x"}
CARD = {"payment_method": "pm_card_visa", "use_stripe_sdk": "true"}  # A page handles 3-D Secure.


@pytest.mark.parametrize(
    ("request_of", "path", "form", "key"),
    [
        (lambda intents: intents.create(payment(), 3), "", CREATE, f"{SHOP}:{ORDER_ID}:0:3"),
        (lambda intents: intents.create(payment(**LATER), 3), "", CREATE, f"{SHOP}:{ORDER_ID}:0:3"),
        (lambda intents: intents.create(payment(released_at=T0), 3), "", CREATE, f"{SHOP}:{ORDER_ID}:{T0}:3"),
        (lambda intents: intents.confirm(payment(attempt=3)), "/pi_1/confirm", CARD, f"{SHOP}:{ORDER_ID}:3:pi_1"),
        (lambda intents: intents.cancel("pi_1", "abandoned"), "/pi_1/cancel", {"cancellation_reason": "abandoned"}, ""),
    ],
)
def test_a_request_sends_what_is_frozen(
    intents: PaymentIntents, http: RequestsMock, request_of: Any, path: str, form: dict[str, str], key: str
) -> None:
    """And nothing else; what moves money has the one key of order and window, or of attempt and PaymentIntent."""
    http.post(f"{INTENTS}{path}", json=stripe_intent())
    request_of(intents)
    [call] = http.calls
    assert dict(parse_qsl(str(call.request.body))) == form
    assert not key or call.request.headers["Idempotency-Key"] == key


@pytest.mark.parametrize(
    ("statuses", "counts"),
    [
        ([], None),
        (["won", "lost", "needs_response"], Dispute("dp_1", "lost")),
        (["lost", "needs_response"], Dispute("dp_0", "lost")),
        (["warning_closed", "won"], Dispute("dp_0", "warning_closed")),
    ],
)
@pytest.mark.parametrize(("is_told", "is_shown"), [(True, False), (False, True), (False, False)])
def test_the_dispute_that_counts_is_retrieved_with_it(
    intents: PaymentIntents,
    http: RequestsMock,
    statuses: list[str],
    counts: Dispute | None,
    is_told: bool,
    is_shown: bool,
) -> None:
    """If its charge or an event says that there is one: of several, rather one that was not won. A refund, a dispute or
    an error that was cleared costs no request of its own."""
    http.get(ONE, json=stripe_intent("succeeded", latest_charge={"id": "ch_1", "disputed": is_shown}))
    found = [{"id": f"dp_{number}", "status": status} for number, status in enumerate(statuses)]
    if is_told or is_shown:
        http.get(f"{STRIPE_API}/v1/disputes", json={"object": "list", "data": found, "has_more": False})
    shown = tools_of(Mock(), intents, lambda: T0).fetch_intent("pi_1", is_disputed=is_told)
    assert shown.dispute == (counts if is_told or is_shown else None)
    queries = [parse_qs(urlsplit(str(call.request.url)).query) for call in http.calls]
    assert queries[0] == {"expand[0]": ["latest_charge"]}
    assert queries[1:] in ([], [{"payment_intent": ["pi_1"], "limit": ["100"]}])


PLAIN = intent("requires_action", created=0)
FAILED = {"object": "charge", "id": "ch_1", "status": "failed", "failure_code": "card_declined"}


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ({}, PLAIN),
        ({"description": "Order ord_" + "b" * 32}, replace(PLAIN, is_described=False)),
        ({"metadata": None, "description": None}, StripeIntent("pi_1", "requires_action", 1099, "EUR")),
        ({"metadata": {**metadata(), "order_id": "ord_x"}}, replace(PLAIN, order_id=None, is_described=False)),
        ({"payment_method_types": ["link"]}, replace(PLAIN, takes_cards=False)),
        ({"client_secret": "pi_1_secret_x"}, replace(PLAIN, client_secret="pi_1_secret_x")),
        (
            {"last_payment_error": {"code": "card_declined", "decline_code": "lost_card"}, "latest_charge": FAILED},
            replace(PLAIN, error_code="lost_card"),
        ),
        ({"latest_charge": FAILED}, replace(PLAIN, error_code="card_declined")),
        ({"latest_charge": {**FAILED, "outcome": {"reason": "stolen_card"}}}, replace(PLAIN, error_code="stolen_card")),
        ({"latest_charge": "ch_1"}, PLAIN),
        (
            {"latest_charge": {"id": "ch_1", "created": T0 + 5, "amount_refunded": 500}},
            replace(PLAIN, charged_at=T0 + 5, amount_refunded_minor=500),
        ),
    ],
)
def test_a_payment_intent_is_read(
    intents: PaymentIntents, http: RequestsMock, shown: dict[str, Any], expected: StripeIntent
) -> None:
    """The SDK's objects have no attribute for what a response leaves out; metadata may be anything."""
    body = stripe_intent("requires_action", **shown)
    http.get(ONE, json={name: each for name, each in body.items() if each is not None})
    response = intents.retrieve("pi_1")
    assert (response.intent, response.failure) == (expected, None)
    assert "secret_x" not in repr(response)


@pytest.mark.parametrize(
    ("request_of", "path"),
    [
        (lambda intents: intents.confirm(payment()), f"{ONE}/confirm"),
        (lambda intents: intents.cancel("pi_1", "abandoned"), f"{ONE}/cancel"),
        (lambda intents: intents.retrieve("pi_1"), ONE),
        (lambda intents: intents.create(payment(), 0), INTENTS),
    ],
)
@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, stripe_intent("succeeded", id="pi_9", metadata={}), ResponseKind.OTHER_OBJECT),
        (503, stripe_error("api_error"), ResponseKind.RETRYABLE),
        (302, {}, ResponseKind.NO_ANSWER),
    ],
)
def test_another_answer_proves_nothing(
    intents: PaymentIntents, http: RequestsMock, request_of: Any, path: str, status: int, body: Any, kind: ResponseKind
) -> None:
    """Another order's success pays for none. A redirect is not followed: after it, a POST would be a GET."""
    http.assert_all_requests_are_fired = False
    http.get(f"{INTENTS}/pi_8", json=stripe_intent("succeeded"))
    method = http.get if path == ONE else http.post
    method(path, status=status, json=body, headers={"Location": f"{INTENTS}/pi_8"} if status == 302 else {})
    response = request_of(intents)
    assert response.intent is None
    assert response.failure.kind is kind
