"""The SDK over the engine, in this process."""

import pytest
import stripe

from stripe_standin.engine import StripeEngine
from stripe_standin.in_process import InProcess


@pytest.fixture
def client() -> stripe.StripeClient:
    return stripe.StripeClient("sk_test_x", http_client=InProcess(StripeEngine(lambda: 1_800_000_000)))


def test_a_key_charges_once(client: stripe.StripeClient) -> None:
    """The second create is answered with the first one's PaymentIntent, and says so, with the time by its clock."""
    wanted: stripe.params.PaymentIntentCreateParams = {
        "amount": 1099,
        "currency": "eur",
        "payment_method": "pm_card_visa",
        "allowed_payment_method_types": ["card"],
        "confirm": True,
    }
    first, second = (client.v1.payment_intents.create(wanted, {"idempotency_key": "order-1"}) for _ in range(2))
    assert (first.status, second.id) == ("succeeded", first.id)
    assert second.last_response is not None
    assert second.last_response.headers["Idempotent-Replayed"] == "true"
    assert second.last_response.headers["Date"] == "Fri, 15 Jan 2027 08:00:00 GMT"
    assert len(client.v1.charges.list().data) == 1


def test_a_decline_is_raised_as_the_sdk_raises_it(client: stripe.StripeClient) -> None:
    """With its decline code, and the PaymentIntent inside."""
    intent = client.v1.payment_intents.create(
        {"amount": 1099, "currency": "eur", "allowed_payment_method_types": ["card"]}
    )
    with pytest.raises(stripe.CardError) as declined:
        client.v1.payment_intents.confirm(intent.id, {"payment_method": "pm_card_visa_chargeDeclined"})
    assert declined.value.error is not None
    assert (declined.value.code, declined.value.error.decline_code) == ("card_declined", "generic_decline")
