"""Refunds with Stripe's client and the stand-in, over HTTP."""

from collections.abc import Iterator
from typing import Any

import pytest
import responses

from onecharge.payments import payment_intents
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.refund_rules import StripeRefund
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_responses import Failure, ResponseKind
from stripe_standin.server import running_standin
from tests.shop.builders import (
    AMOUNT_MINOR,
    BOUNDS,
    ORDER_ID,
    PATIENT,
    SHOP,
    STRIPE_API,
    requested,
)


@pytest.fixture
def refunds() -> Iterator[PaymentIntents]:
    with running_standin() as standin:
        yield PaymentIntents(stripe_client("sk_test_x", api_base=standin.base_url, bounds=PATIENT), SHOP)


@pytest.fixture
def paid(refunds: PaymentIntents) -> str:
    """The id of a PaymentIntent that succeeded."""
    card: Any = {"payment_method": "pm_card_visa", "confirm": True, "allowed_payment_method_types": ["card"]}
    intent = refunds.client.v1.payment_intents.create(card | {"amount": AMOUNT_MINOR, "currency": "eur"})
    assert intent.status == "succeeded"
    return intent.id


def test_a_refund_is_one_request_under_its_one_key() -> None:
    """The SDK sends none of its own: after a 500, a second one might be refused, and hide that the first is made."""
    refunds = PaymentIntents(stripe_client("sk_test_x", api_base=STRIPE_API, bounds=BOUNDS), SHOP)
    wanted = requested(1, 400).data
    with responses.RequestsMock() as stripe:
        stripe.post(f"{STRIPE_API}/v1/refunds", status=500, json={"error": {"type": "api_error", "message": "…"}})
        assert refunds.create_refund(wanted, "pi_1") == Failure(ResponseKind.RETRYABLE, message="…")
        [call] = stripe.calls
    assert call.request.headers["Idempotency-Key"] == f"{SHOP}:{wanted.refund_id}"
    assert dict(pair.split("=") for pair in str(call.request.body).split("&")) == {
        "payment_intent": "pi_1",
        "amount": "400",
        "metadata[shop]": SHOP,
        "metadata[order_id]": ORDER_ID,
        "metadata[refund_id]": wanted.refund_id,
    }


def test_all_pages_are_read(refunds: PaymentIntents, paid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest first; refunds by hand are among them."""
    made = [refunds.create_refund(requested(number, 1).data, paid) for number in range(5)]
    refunds.client.v1.refunds.create({"payment_intent": paid, "amount": 7})
    monkeypatch.setattr(payment_intents, "_PAGE_SIZE", 2)
    by_hand, *ours = refunds.list_refunds(paid)
    assert (by_hand.refund_id, by_hand.amount_minor) == (None, 7)
    assert ours == [each for each in reversed(made) if isinstance(each, StripeRefund)]
