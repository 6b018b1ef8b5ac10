"""A running Stripe stand-in with Stripe's client and the admin client, for tests."""

import time
from typing import Any

import pytest
import stripe

from stripe_standin.admin import StandInAdmin
from stripe_standin.server import StandIn

PATIENCE_SECONDS = 60


class Account:
    """Short forms of the requests that the tests send. `fails` and `confirm_fails` return Stripe's error."""

    def __init__(self, standin: StandIn) -> None:
        self._standin = standin
        self.base_url = standin.base_url
        self.admin = StandInAdmin(standin.base_url)
        self.client = self.client_with("sk_test_x")

    def client_with(self, api_key: str, *, read_seconds: float = PATIENCE_SECONDS) -> stripe.StripeClient:
        return stripe.StripeClient(
            api_key,
            base_addresses={"api": self.base_url},
            http_client=stripe.RequestsClient(timeout=(2, read_seconds)),
            max_network_retries=0,
        )

    def stop_clock(self) -> None:
        """Stripe's: from now on only `admin.advance_clock` moves it."""
        stopped_at = self._standin.clock()
        self._standin.clock = lambda: stopped_at

    def await_faults(self, number: int) -> None:
        """Until so many requests have met a fault: those with a latency are in progress then."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.admin.faults_met() < number:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def end_latencies(self) -> None:
        """What waits at Stripe goes on, and nothing waits from now on."""
        self._standin.stopping.set()

    def pay(self, key: str | None = None, **changes: Any) -> stripe.PaymentIntent:
        """Create and confirm a PaymentIntent in one request."""
        parameters: Any = {
            "amount": 1099,
            "currency": "eur",
            "payment_method": "pm_card_visa",
            "confirm": True,
            "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
            "metadata": {"order_id": "ord_1", "attempt": "1"},
            **changes,
        }
        return self.client.v1.payment_intents.create(parameters, {"idempotency_key": key} if key else {})

    def fails(self, key: str | None = None, **changes: Any) -> stripe.StripeError:
        with pytest.raises(stripe.StripeError) as failed:
            self.pay(key, **changes)
        return failed.value

    def create(self, key: str | None = None, **changes: Any) -> stripe.PaymentIntent:
        """Create a PaymentIntent without confirming it."""
        parameters: Any = {
            "amount": 1099,
            "currency": "eur",
            "allowed_payment_method_types": ["card"],
            "metadata": {"shop": "shop_1", "order_id": "ord_1"},
            **changes,
        }
        return self.client.v1.payment_intents.create(parameters, {"idempotency_key": key} if key else {})

    def confirm(
        self, intent_id: str, payment_method: str | None = "pm_card_visa", key: str | None = None, **changes: Any
    ) -> stripe.PaymentIntent:
        parameters: Any = {**({"payment_method": payment_method} if payment_method else {}), **changes}
        return self.client.v1.payment_intents.confirm(intent_id, parameters, {"idempotency_key": key} if key else {})

    def confirm_fails(self, *arguments: Any, **changes: Any) -> stripe.StripeError:
        with pytest.raises(stripe.StripeError) as failed:
            self.confirm(*arguments, **changes)
        return failed.value

    def payment_method(self) -> str:
        """The id of a new PaymentMethod, which without a customer pays once."""
        card: Any = {"type": "card", "card": {"token": "tok_visa"}}
        return self.client.v1.payment_methods.create(card).id

    def retrieve(self, intent_id: str) -> stripe.PaymentIntent:
        return self.client.v1.payment_intents.retrieve(intent_id)

    def event_types(self) -> list[str]:
        """The types of all events, oldest first."""
        return [event["type"] for event in self.admin.events()]

    @property
    def charges(self) -> int:
        """The number of charges in the ledger."""
        return len(self.admin.ledger().charges)
