"""PaymentIntents: each makes at most one successful charge.

Source: Stripe API reference, "PaymentIntents"; Stripe documentation, "How PaymentIntents and SetupIntents work".

    requires_payment_method ─► requires_confirmation ─► (confirm) ─┬─► succeeded
              ▲                                                    ├─► processing ─► succeeded, or declined
              └───────────────── declined ◄────────────────────────┴─► requires_action ─► succeeded, or declined
    any status but succeeded and processing ─► (cancel) ─► canceled
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stripe_standin.account import Account, digest, shown
from stripe_standin.errors import ApiError, missing, refused
from stripe_standin.messages import Request
from stripe_standin.parameters import allow, one_of

_CANCELLATION_REASONS = ("abandoned", "duplicate", "fraudulent", "requested_by_customer")


@dataclass
class PaymentIntent:
    """One PaymentIntent."""

    named: ClassVar = ("payment_intent", "intent")
    id: str
    amount: int
    currency: str
    created: int
    metadata: dict[str, str]
    payment_method: str | None = None
    description: str | None = None
    receipt_email: str | None = None
    statement_descriptor_suffix: str | None = None
    status: str = "requires_payment_method"
    latest_charge: str | None = None
    last_payment_error: dict[str, Any] | None = None
    canceled_at: int | None = None
    cancellation_reason: str | None = None
    payment_method_types: list[str] = field(default_factory=lambda: ["card"])
    confirmed_under: str | None = None
    """The idempotency key of its last confirm."""

    def as_json(self) -> dict[str, Any]:
        return {
            **_CONSTANT,
            **shown(self, _SHOWN),
            "amount_received": self.amount if self.status == "succeeded" else 0,
            "metadata": dict(self.metadata),
            "next_action": _BY_STRIPE_JS if self.status == "requires_action" else None,
        }

    @property
    def client_secret(self) -> str:
        return f"{self.id}_secret_{digest(self.id)[:25]}"


_BY_STRIPE_JS = {"type": "use_stripe_sdk", "use_stripe_sdk": {}}
_SHOWN = (
    "id amount canceled_at cancellation_reason client_secret created currency description last_payment_error "
    "latest_charge payment_method payment_method_types receipt_email status statement_descriptor_suffix"
).split()
_NOT_MODELED = (
    "application application_fee_amount automatic_payment_methods customer customer_account "
    "excluded_payment_method_types managed_payments on_behalf_of payment_method_configuration_details payment_record "
    "processing review setup_future_usage shipping source statement_descriptor transfer_data transfer_group"
).split()
_OF_CARD = {**dict.fromkeys(("installments", "mandate_options", "network")), "request_three_d_secure": "automatic"}
_CONSTANT: Mapping[str, Any] = {
    **dict.fromkeys(_NOT_MODELED),
    "object": "payment_intent",
    "allowed_payment_method_types": ["card"],
    "amount_capturable": 0,
    "amount_details": {"tip": {}},
    "capture_method": "automatic_async",
    "confirmation_method": "automatic",
    "livemode": False,
    "payment_method_options": {"card": _OF_CARD},
}


def cancel(account: Account, request: Request, identifier: str) -> dict[str, Any]:
    """POST /v1/payment_intents/{id}/cancel"""
    parameters = allow(request, "cancellation_reason")
    reason = one_of(parameters, "cancellation_reason", _CANCELLATION_REASONS)
    intent = account.find(PaymentIntent, identifier)
    if intent.status in ("succeeded", "canceled", "processing"):
        text = f"You cannot cancel this PaymentIntent because it has a status of {intent.status}."
        raise unexpected_state(intent, text)
    cancel_now(account, intent, reason)
    return intent.as_json()


def cancel_now(account: Account, intent: PaymentIntent, reason: str | None) -> None:
    intent.status, intent.canceled_at, intent.cancellation_reason = "canceled", account.now, reason
    emit_change(account, intent, "canceled")


def retrieve(account: Account, request: Request, identifier: str) -> dict[str, Any]:
    """GET /v1/payment_intents/{id}. A publishable key needs the client secret."""
    parameters = allow(request, "client_secret")
    intent = account.find(PaymentIntent, identifier)
    if request.is_of_a_page and parameters.get("client_secret") != intent.client_secret:
        raise missing("payment_intent", identifier, "intent")
    return intent.as_json()


def emit_change(account: Account, intent: PaymentIntent, what: str) -> None:
    """Emit `payment_intent.{what}`."""
    account.emit(f"payment_intent.{what}", intent.as_json())


def unexpected_state(intent: PaymentIntent, message: str) -> ApiError:
    return refused(message, code="payment_intent_unexpected_state", payment_intent=intent.as_json())
