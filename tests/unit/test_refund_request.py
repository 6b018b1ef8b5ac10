"""The request that refunds, with its body and its key."""

import responses

from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.stripe_responses import Failure, ResponseKind
from tests.shop.builders import BOUNDS, ORDER_ID, SHOP, STRIPE_API, requested


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
