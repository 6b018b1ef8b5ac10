"""What the tests build: an order, its payment's row, its PaymentIntent, its refunds; the same order for all of them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from onecharge.contract.events import OrderPlaced
from onecharge.contract.refund_events import RefundRequested, RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.payment_intents import description_of
from onecharge.payments.payments_table import UNFINISHED, FrozenRequest, Payment
from onecharge.payments.stripe_responses import StripeIntent
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.dynamodb import to_item
from stripe_standin import attempts, payment_intents, payment_methods
from stripe_standin.messages import Request
from stripe_standin.payment_intents import PaymentIntent
from tests.shop.dynamodb import Item

HOUR = 3600
DAY = 24 * HOUR
T0 = 1_800_000_000
"""When the order is placed, in epoch seconds."""
SHOP = "111122223333-eu-central-1-onecharge-0a1b2c3d"
"""The shop of all orders, as the environment variable spells it."""
ORDER_ID = "ord_" + "a" * 32
AMOUNT_MINOR = 1099
PAYMENT_INTENT = "pi_0"
PAYMENTS, PAYMENTS_STATE = "Payments", "PaymentsState"
TABLES: Mapping[str, tuple[str, ...]] = {PAYMENTS: ("order_id",), PAYMENTS_STATE: ("name",)}
"""The tables, and their keys."""
INDEXES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    PAYMENTS: {UNFINISHED: ("unfinished_shard", "unfinished_claimed_at")}
}
STRIPE_API = "https://api.stripe.com"
INTENTS = f"{STRIPE_API}/v1/payment_intents"
"""Where PaymentIntents are created; each is below it."""
BOUNDS = TimeBounds(30)
"""How long a worker may run, as template.yaml says."""
PATIENT = TimeBounds(250)
"""For requests to a stand-in: on a busy machine, too, the first try is answered."""


def order(**changes: Any) -> OrderPlaced:
    """An order of 10.99 EUR, first attempt, placed at T0."""
    placed = {
        "order_id": ORDER_ID,
        "attempt": 1,
        "customer_id": "cus_1",
        "amount_minor": AMOUNT_MINOR,
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
        "correlation_id": "c",
    }
    return Payment(**(row | changes))


def intent(status: str = "succeeded", **changes: Any) -> StripeIntent:
    """`pi_1` of that order, as Stripe shows it."""
    shown: dict[str, Any] = {
        "payment_intent_id": "pi_1",
        "status": status,
        "amount_minor": AMOUNT_MINOR,
        "currency": "EUR",
        "shop": SHOP,
        "order_id": ORDER_ID,
        "customer_id": "cus_1",
        "is_described": True,
        "created": T0,
    }
    return StripeIntent(**(shown | changes))


def metadata(order_id: str = ORDER_ID) -> dict[str, str]:
    """What our PaymentIntents say about their order."""
    return {"shop": SHOP, "order_id": order_id, "customer_id": "cus_1"}


def stripe_intent(status: str = "requires_payment_method", **changes: Any) -> dict[str, Any]:
    """`pi_1` of that order, as Stripe's API sends it."""
    return {
        "id": "pi_1",
        "object": "payment_intent",
        "amount": AMOUNT_MINOR,
        "currency": "eur",
        "status": status,
        "metadata": metadata(),
        "description": description_of(ORDER_ID),
        **changes,
    }


def stripe_error(type_: str = "invalid_request_error", message: str = "…", **details: Any) -> dict[str, Any]:
    """The body of an error, as Stripe's API sends it."""
    return {"error": {"type": type_, "message": message, **details}}


# ---------------------------------------------------------------- an order that is paid


def charged[Stripe](stripe: Stripe) -> Stripe:
    """The shop's Stripe has charged the order with its first PaymentIntent."""
    account: Any = stripe.ours  # type: ignore[attr-defined]
    intent = PaymentIntent(PAYMENT_INTENT, AMOUNT_MINOR, "eur", account.now, metadata())
    intent.description = description_of(ORDER_ID)
    account.all(PaymentIntent)[intent.id] = intent
    payment_intents.emit_change(account, intent, "created")
    card = payment_methods.resolve(account, "pm_card_visa")
    attempts.attempt(account, intent, card, Request("POST", f"/v1/payment_intents/{intent.id}/confirm", {}))
    return stripe


def requested(number: int, amount_minor: int) -> RefundRequestedEvent:
    """The order service's event."""
    asked = RefundRequested(
        order_id=ORDER_ID,
        refund_id=f"rfd_{number:032x}",
        attempt=1,
        amount_minor=amount_minor,
        currency="EUR",
        requested_at=datetime.fromtimestamp(T0, UTC),
    )
    return RefundRequestedEvent.of(asked, correlation_id="c")


REFUND = requested(0, 400)
"""The message of the first refund."""
REFUND_ID = REFUND.data.refund_id
OTHER_REFUND_ID = "rfd_" + "b" * 32


def paid(state: PaymentState = PaymentState.SUCCEEDED) -> Item:
    """The payment's row."""
    return to_item(
        {
            "order_id": ORDER_ID,
            "attempt": 1,
            "state": state,
            "payment_intent_id": PAYMENT_INTENT,
            "amount_minor": AMOUNT_MINOR,
            "currency": "EUR",
            "customer_id": "cus_1",
            "placed_at": T0 - DAY,
            "correlation_id": "c",
            "claimed_at": T0 - DAY,
            "lease_expires_at": 0,
            "revision": 3,
        }
    )
