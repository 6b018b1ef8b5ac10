"""Early fraud warnings and reviews; test cards open them.

Source: Stripe API reference, "The Early Fraud Warning object", "The Review object".
"""

from dataclasses import dataclass
from typing import Any

from stripe_standin.account import Account
from stripe_standin.errors import missing
from stripe_standin.messages import Request
from stripe_standin.parameters import allow
from stripe_standin.payment_intents import PaymentIntent


@dataclass
class EarlyFraudWarning:
    """The card's issuer says that a charge may be fraudulent."""

    id: str
    intent: PaymentIntent
    created: int

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "radar.early_fraud_warning",
            "actionable": True,
            "charge": self.intent.latest_charge,
            "created": self.created,
            "fraud_type": "unauthorized_use_of_card",
            "livemode": False,
            "payment_intent": self.intent.id,
        }


@dataclass
class Review:
    """A person has to decide whether a payment is fraud. A review of a PaymentIntent names no charge."""

    id: str
    intent: PaymentIntent
    created: int
    closed_reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            **dict.fromkeys(("billing_zip", "charge", "ip_address", "ip_address_location", "session")),
            "id": self.id,
            "object": "review",
            "closed_reason": self.closed_reason,
            "created": self.created,
            "livemode": False,
            "open": self.closed_reason is None,
            "opened_reason": "rule",
            "payment_intent": self.intent.id,
            "reason": self.closed_reason or "rule",
        }


def warn(account: Account, intent: PaymentIntent) -> None:
    warning = EarlyFraudWarning(account.ids.new("issfr"), intent, account.now)
    account.all(EarlyFraudWarning)[warning.id] = warning
    account.emit("radar.early_fraud_warning.created", warning.as_json())


def open_review(account: Account, intent: PaymentIntent) -> None:
    review = Review(account.ids.new("prv"), intent, account.now)
    account.all(Review)[review.id], intent.review = review, review.id
    account.emit("review.opened", review.as_json())


def close_review(account: Account, identifier: str, reason: str) -> dict[str, Any]:
    """A person approves the payment, or it is refunded or disputed. The PaymentIntent still names its review."""
    review = _find(account, Review, identifier)
    review.closed_reason = reason
    account.emit("review.closed", review.as_json())
    return review.as_json()


def approve(account: Account, request: Request, identifier: str) -> dict[str, Any]:
    allow(request)
    return close_review(account, identifier, "approved")


def retrieve(
    kind: type[EarlyFraudWarning | Review], account: Account, request: Request, identifier: str
) -> dict[str, Any]:
    allow(request)
    return _find(account, kind, identifier).as_json()


def _find[Kind: EarlyFraudWarning | Review](account: Account, kind: type[Kind], identifier: str) -> Kind:
    if identifier not in account.all(kind):
        raise missing(kind.__name__, identifier, "id")
    return account.all(kind)[identifier]
