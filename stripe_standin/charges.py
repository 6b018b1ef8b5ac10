"""Charges, successful, failed and pending. Source: Stripe API reference, "The Charge object"."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from stripe_standin import balance
from stripe_standin.account import shown
from stripe_standin.cards import Declines
from stripe_standin.payment_methods import NO_BILLING_DETAILS, PaymentMethod

_SHOWN = "id amount amount_refunded created currency description disputed payment_intent receipt_email".split()
_NOT_MODELED = (
    "application application_fee application_fee_amount customer failure_balance_transaction on_behalf_of "
    "receipt_number receipt_url review shipping source source_transfer statement_descriptor "
    "statement_descriptor_suffix transfer_data transfer_group"
).split()
_NOT_MODELED_OF_CARD = (
    "authorization_code electronic_commerce_indicator installments mandate network_transaction_id three_d_secure "
    "transaction_link_id"
).split()
_CONSTANT = {
    **dict.fromkeys(_NOT_MODELED),
    "object": "charge",
    "billing_details": NO_BILLING_DETAILS,
    "calculated_statement_descriptor": "Stripe",
    "fraud_details": {},
    "livemode": False,
}


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
            **_CONSTANT,
            **shown(self, _SHOWN),
            "amount_captured": self.amount if paid else 0,
            "balance_transaction": balance.id_for(self.id) if paid else None,
            "captured": paid,
            "failure_code": self.declined.code if self.declined else None,
            "failure_message": self.declined.message if self.declined else None,
            "metadata": dict(self.metadata),
            "outcome": None if self.pending else _outcome(self.declined),
            "paid": paid,
            "payment_method": self.method.id,
            "payment_method_details": {"card": self._card_json(), "type": "card"},
            "refunded": paid and self.amount_refunded == self.amount,
            "status": "pending" if self.pending else "failed" if self.declined else "succeeded",
        }

    def _card_json(self) -> dict[str, Any]:
        details = self.method.card_details()
        authorized = self.amount if self.succeeded else None
        unknown = dict.fromkeys(_NOT_MODELED_OF_CARD)
        return {**details, **unknown, "amount_authorized": authorized, "network": details["brand"]}


def _outcome(declined: Declines | None) -> dict[str, Any]:
    return {
        "advice_code": declined.advice_code if declined else None,
        "network_advice_code": None,
        "network_decline_code": None,
        "network_status": "declined_by_network" if declined else "approved_by_network",
        "reason": (declined.decline_code or declined.code) if declined else None,
        "risk_level": "normal",
        "seller_message": "The bank did not return any further details." if declined else "Payment complete.",
        "type": "issuer_declined" if declined else "authorized",
    }
