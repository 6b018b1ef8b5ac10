"""Charges, successful, failed and pending. Source: Stripe API reference, "The Charge object"."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from stripe_standin import balance
from stripe_standin.cards import Declines
from stripe_standin.payment_methods import NO_BILLING_DETAILS, PaymentMethod

_NOT_MODELED = (
    "application application_fee application_fee_amount failure_balance_transaction on_behalf_of receipt_number "
    "receipt_url review shipping source source_transfer statement_descriptor statement_descriptor_suffix transfer_data "
    "transfer_group"
).split()
_NOT_MODELED_OF_CARD = (
    "authorization_code electronic_commerce_indicator installments mandate network_transaction_id three_d_secure "
    "transaction_link_id"
).split()


@dataclass
class Charge:
    """One charge. Money was taken only if it succeeded; then it is in the ledger."""

    named: ClassVar = ("charge", "id")
    id: str
    payment_intent: str
    amount: int
    currency: str
    created: int
    metadata: Mapping[str, str]
    method: PaymentMethod
    description: str | None = None
    receipt_email: str | None = None
    idempotency_key: str | None = None
    declined: Declines | None = None
    pending: bool = False
    amount_refunded: int = 0
    disputed: bool = False

    @property
    def succeeded(self) -> bool:
        return self.declined is None and not self.pending

    def as_json(self) -> dict[str, Any]:
        paid = self.succeeded
        return {
            **dict.fromkeys(_NOT_MODELED),
            "id": self.id,
            "object": "charge",
            "amount": self.amount,
            "amount_captured": self.amount if paid else 0,
            "amount_refunded": self.amount_refunded,
            "balance_transaction": balance.id_for(self.id) if paid else None,
            "billing_details": NO_BILLING_DETAILS,
            "calculated_statement_descriptor": "Stripe",
            "captured": paid,
            "created": self.created,
            "currency": self.currency,
            "customer": None,
            "description": self.description,
            "disputed": self.disputed,
            "failure_code": self.declined.code if self.declined else None,
            "failure_message": self.declined.message if self.declined else None,
            "fraud_details": {},
            "livemode": False,
            "metadata": dict(self.metadata),
            "outcome": None if self.pending else _outcome(self.declined),
            "paid": paid,
            "payment_intent": self.payment_intent,
            "payment_method": self.method.id,
            "payment_method_details": {"card": self._card_json(), "type": "card"},
            "receipt_email": self.receipt_email,
            "refunded": paid and self.amount_refunded == self.amount,
            "status": "pending" if self.pending else "failed" if self.declined else "succeeded",
        }

    def _card_json(self) -> dict[str, Any]:
        details = self.method.card_details()
        authorized = self.amount if self.succeeded else None
        unknown = dict.fromkeys(_NOT_MODELED_OF_CARD)
        return {**details, **unknown, "amount_authorized": authorized, "network": details["brand"]}


def _outcome(declined: Declines | None) -> dict[str, Any]:
    if declined is None:
        network_status, type_, message = "approved_by_network", "authorized", "Payment complete."
    else:
        network_status, type_ = "declined_by_network", "issuer_declined"
        message = "The bank did not return any further details with this decline."
    return {
        "advice_code": declined.advice_code if declined else None,
        "network_advice_code": None,
        "network_decline_code": None,
        "network_status": network_status,
        "reason": (declined.decline_code or declined.code) if declined else None,
        "risk_level": "normal",
        "seller_message": message,
        "type": type_,
    }
