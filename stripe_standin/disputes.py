"""Disputes; an admin call or a test card opens them. Source: Stripe API reference, "The Dispute object"."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stripe_standin import balance
from stripe_standin.account import Account, shown
from stripe_standin.balance import BalanceTransaction
from stripe_standin.charges import Charge
from stripe_standin.errors import invalid

_DAYS_TO_RESPOND = 9
_CLOSED = ("won", "lost", "warning_closed", "prevented")
_CHARGED_BACK = ("needs_response", "under_review", "lost", "appeal_needs_response", "appeal_under_review")
_EVIDENCE = (
    "access_activity_log billing_address cancellation_policy cancellation_policy_disclosure cancellation_rebuttal "
    "customer_communication customer_email_address customer_name customer_purchase_ip customer_signature "
    "duplicate_charge_documentation duplicate_charge_explanation duplicate_charge_id product_description receipt "
    "refund_policy refund_policy_disclosure refund_refusal_explanation service_date service_documentation "
    "shipping_address shipping_carrier shipping_date shipping_documentation shipping_tracking_number "
    "uncategorized_file uncategorized_text"
).split()
_CONSTANT: Mapping[str, Any] = {
    "object": "dispute",
    "enhanced_eligibility_types": [],
    "evidence": {**dict.fromkeys(_EVIDENCE), "enhanced_evidence": {}},
    "intended_submission_method": None,
    "is_charge_refundable": False,
    "livemode": False,
    "metadata": {},
    "reason": "fraudulent",
}
"""A dispute does not inherit the metadata of its charge."""


@dataclass
class Dispute:
    """The cardholder contests a charge at the bank."""

    named: ClassVar = ("dispute", "dispute")
    id: str
    charge: Charge
    amount: int
    created: int
    status: str = "needs_response"
    booked: list[BalanceTransaction] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            **_CONSTANT,
            **shown(self, ("id", "amount", "created", "status")),
            "balance_transactions": [each.as_json() for each in self.booked],
            "charge": self.charge.id,
            "currency": self.charge.currency,
            "evidence_details": {
                "due_by": self.created + _DAYS_TO_RESPOND * 24 * 3600,
                "enhanced_eligibility": {},
                "has_evidence": False,
                "past_due": False,
                "submission_count": 0,
                "submission_method": "not_submitted",
            },
            "payment_intent": self.charge.payment_intent,
        }


def open_dispute(
    account: Account, charge: Charge, amount: int | None = None, status: str = "needs_response"
) -> Dispute:
    if not charge.succeeded:
        raise invalid("Only a successful charge can be disputed.", param="charge")
    dispute = Dispute(account.ids.new("du"), charge, amount or charge.amount, account.now, status)
    account.all(Dispute)[dispute.id] = dispute
    charge.disputed = True
    dispute.booked.append(balance.book(account, "dispute", dispute.id, -dispute.amount, charge.currency))
    account.emit("charge.dispute.created", dispute.as_json())
    account.emit("charge.dispute.funds_withdrawn", dispute.as_json())
    return dispute


def change_status(account: Account, dispute: Dispute, status: str) -> None:
    """The bank decides, or an appeal reopens its decision."""
    before, dispute.status = dispute.status, status
    if status == "won" and before != "won":
        currency = dispute.charge.currency
        dispute.booked.append(balance.book(account, "dispute_reversal", dispute.id, dispute.amount, currency))
    kind = "closed" if status in _CLOSED else "updated"
    account.emit(f"charge.dispute.{kind}", dispute.as_json(), {"status": before})


def is_charged_back(account: Account, charge: Charge) -> bool:
    """Whether the bank has taken the money of the charge: not while it only inquires, nor once a dispute is won."""
    return any(each.charge is charge and each.status in _CHARGED_BACK for each in account.all(Dispute).values())
