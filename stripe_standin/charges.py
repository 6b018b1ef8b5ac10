"""Charges, successful, failed and pending. Source: Stripe API reference, "The Charge object"."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stripe_standin import balance
from stripe_standin.account import Account
from stripe_standin.cards import Declines
from stripe_standin.errors import missing
from stripe_standin.messages import Request
from stripe_standin.parameters import allow
from stripe_standin.payment_methods import NO_ADDRESS, NO_BILLING_DETAILS, PaymentMethod


@dataclass
class Charge:
    """One charge. Money was taken only if it succeeded; then it is in the ledger."""

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

    @property
    def status(self) -> str:
        if self.pending:
            return "pending"
        return "failed" if self.declined else "succeeded"

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
            "billing_details": {**NO_BILLING_DETAILS, "address": dict(NO_ADDRESS)},
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
            "status": self.status,
        }

    def _card_json(self) -> dict[str, Any]:
        details = self.method.card_details()
        unknown = (
            "authorization_code electronic_commerce_indicator installments mandate network_transaction_id "
            "three_d_secure transaction_link_id"
        ).split()
        return {
            **details,
            **dict.fromkeys(unknown),
            "amount_authorized": self.amount if self.succeeded else None,
            "network": details["brand"],
        }

    def as_ledger_entry(self, account: Account) -> dict[str, Any]:
        return {
            "id": self.id,
            "payment_intent": self.payment_intent,
            "amount": self.amount,
            "currency": self.currency,
            "created": self.created,
            "metadata": dict(self.metadata),
            "idempotency_key": self.idempotency_key,
            "payment_method": self.method.id,
            "status": self.status,
            "account": account.id,
        }


_NOT_MODELED = (
    "application application_fee application_fee_amount failure_balance_transaction on_behalf_of receipt_number "
    "receipt_url review shipping source source_transfer statement_descriptor statement_descriptor_suffix transfer_data "
    "transfer_group"
).split()


def retrieve(account: Account, request: Request, identifier: str) -> dict[str, Any]:
    allow(request)
    return find(account, identifier).as_json()


def find(account: Account, identifier: str) -> Charge:
    if identifier not in account.all(Charge):
        raise missing("charge", identifier, "id")
    return account.all(Charge)[identifier]


def _outcome(declined: Declines | None) -> dict[str, Any]:
    if declined is None:
        network_status, type_, message = "approved_by_network", "authorized", "Payment complete."
    elif declined.blocked:
        network_status, type_, message = "not_sent_to_network", "blocked", "Stripe blocked this payment as too risky."
    else:
        network_status, type_ = "declined_by_network", "issuer_declined"
        message = "The bank did not return any further details with this decline."
    return {
        "advice_code": declined.advice_code if declined else None,
        "network_advice_code": None,
        "network_decline_code": None,
        "network_status": network_status,
        "reason": (declined.decline_code or declined.code) if declined else None,
        "risk_level": "highest" if declined and declined.blocked else "normal",
        "seller_message": message,
        "type": type_,
    }
