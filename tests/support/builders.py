"""What several suites build: an order, its payment's row, its PaymentIntent."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from onecharge.contract.events import OrderPlaced
from onecharge.contract.states import PaymentState
from onecharge.payments.charges.protocol import FrozenRequest, Payment, StripeIntent
from onecharge.payments.time_bounds import TimeBounds

T0 = 1_800_000_000
"""When the order is placed, in epoch seconds."""
ORDER_ID = "ord_" + "a" * 32
STRIPE_API = "https://api.stripe.com"
INTENTS = f"{STRIPE_API}/v1/payment_intents"
"""Where PaymentIntents are created; each is below it."""
BOUNDS = TimeBounds.of(30)
PATIENT = replace(BOUNDS, stripe_connect_timeout_seconds=60, stripe_read_timeout_seconds=60)
"""For requests to a stand-in: on a busy machine, too, the first try is answered."""


def order(**changes: Any) -> OrderPlaced:
    """An order of 10.99 EUR, first attempt, placed at T0."""
    placed = {
        "order_id": ORDER_ID,
        "attempt": 1,
        "customer_id": "cus_1",
        "amount_minor": 1099,
        "currency": "EUR",
        "payment_method": "pm_card_visa",
        "placed_at": datetime.fromtimestamp(T0, UTC),
    }
    return OrderPlaced.model_validate(placed | changes)


REQUEST = FrozenRequest.of(order())


def payment(**changes: Any) -> Payment:
    """The claimed row of that order, its PaymentIntent `pi_1` written down."""
    row: dict[str, Any] = {
        "request": REQUEST,
        "attempt": 1,
        "payment_method": "pm_card_visa",
        "state": PaymentState.PENDING,
        "payment_intent_id": "pi_1",
        "lease_owner": "owner",
        "lease_expires_at": T0 + 35,
        "revision": 2,
        "claimed_at": T0,
        "attempt_claimed_at": T0,
        "correlation_id": "c",
    }
    return Payment(**(row | changes))


def intent(status: str = "succeeded", **changes: Any) -> StripeIntent:
    """`pi_1` of that order, as Stripe shows it."""
    shown: dict[str, Any] = {
        "payment_intent_id": "pi_1",
        "status": status,
        "amount_minor": 1099,
        "currency": "EUR",
        "customer_id": "cus_1",
        "placed_at": T0,
    }
    return StripeIntent(**(shown | changes))


def stripe_intent(status: str = "requires_payment_method", **changes: Any) -> dict[str, Any]:
    """`pi_1` of that order, as Stripe's API sends it."""
    metadata = {"order_id": ORDER_ID, "customer_id": "cus_1", "placed_at": str(T0), "generation": "0"}
    return {
        "id": "pi_1",
        "object": "payment_intent",
        "amount": 1099,
        "currency": "eur",
        "status": status,
        "metadata": metadata,
        **changes,
    }


def stripe_error(type_: str = "invalid_request_error", message: str = "…", **details: Any) -> dict[str, Any]:
    """The body of an error, as Stripe's API sends it."""
    return {"error": {"type": type_, "message": message, **details}}
