"""An order that is paid: what Stripe has, the payment's row, and requests to refund it."""

from datetime import UTC, datetime

from onecharge.contract.refunds import RefundRequested, RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.dynamodb import to_item
from stripe_standin import attempts, payment_intents, payment_methods
from stripe_standin.messages import Request
from stripe_standin.payment_intents import PaymentIntent
from tests.shop.dynamodb import Item
from tests.shop.stripe import ShopStripe

HOUR = 3600
DAY = 24 * HOUR
T0 = 1_800_000_000
BOUNDS = TimeBounds.of(30)
"""How long a worker may run, as template.yaml says."""
PAYMENTS, REFUNDS = "Payments", "Refunds"
ORDER_ID = "ord_" + "a" * 32
PAYMENT_INTENT = "pi_0"
AMOUNT_MINOR = 1099


def charged(stripe: ShopStripe) -> ShopStripe:
    """Stripe has charged the order with its first PaymentIntent."""
    account = stripe.ours
    intent = PaymentIntent(PAYMENT_INTENT, AMOUNT_MINOR, "eur", account.now, {"order_id": ORDER_ID})
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


def paid(state: PaymentState = PaymentState.SUCCEEDED) -> Item:
    """The payment's row."""
    return to_item(
        {
            "order_id": ORDER_ID,
            "attempt": 1,
            "state": state,
            "generation": 0,
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
