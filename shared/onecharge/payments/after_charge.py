"""What happens to a charge afterwards: its refunds and disputes, and whether it may be fraud; which status of a dispute
counts or asks for a response.

A status that this module does not know is open. Sources: Stripe API reference, "The Dispute object", `status`; "The
Early Fraud Warning object"; "The Review object".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

LOST = "lost"
"""The customer has the money back."""
EARLY_FRAUD_WARNING, REVIEW = "early_fraud_warning", "review"
"""Why a charge may be fraud: its issuer has said so, or Stripe has a person review it."""
CLOSED_DISPUTES = ("won", LOST, "warning_closed", "prevented")
"""The dispute is over. A lost one may still be appealed."""

Disputes = Mapping[str, str]
"""Stripe's status of each dispute of one PaymentIntent, by its id; the newest dispute first."""


@dataclass(frozen=True)
class AfterCharge:
    """What Stripe shows of a PaymentIntent that succeeded."""

    amount_refunded_minor: int = 0
    disputes: Disputes = field(default_factory=dict)
    fraud_suspicion: str | None = None
    """EARLY_FRAUD_WARNING, REVIEW or None."""
    is_fraud_known: bool = field(default=True, compare=False)
    """False: the API key may not ask, and the suspicion is what the PaymentIntent itself shows."""


def needs_response(status: str) -> bool:
    """Whether Stripe waits for evidence: of a dispute, of an inquiry before one, or of an appeal."""
    return status.endswith("needs_response")


def status_of(disputes: Disputes) -> str | None:
    """The most urgent dispute's status; the newest on ties. None if there is no dispute."""
    return min(disputes.values(), key=_urgency, default=None)


def is_open(disputes: Disputes) -> bool:
    """Whether the bank has yet to decide one of them."""
    return any(status not in CLOSED_DISPUTES for status in disputes.values())


def new_requests(before: Disputes, now: Disputes) -> list[str]:
    """The ids of the disputes that need a response, and did not need this one before."""
    return [each for each, status in now.items() if needs_response(status) and before.get(each) != status]


def _urgency(status: str) -> int:
    return 0 if needs_response(status) else 2 if status in CLOSED_DISPUTES else 1
