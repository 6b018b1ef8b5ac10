"""Refunds.

Source: Stripe API reference, "Create a refund", "The Refund object"; Stripe documentation, "Refund and cancel payments"
(failed refunds) and "Testing" (refunds).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from stripe_standin import balance
from stripe_standin.account import Account, shown
from stripe_standin.amounts import in_units, positive_amount
from stripe_standin.charges import Charge
from stripe_standin.disputes import is_charged_back
from stripe_standin.errors import invalid, missing, refused
from stripe_standin.faults import Fault
from stripe_standin.messages import Request
from stripe_standin.parameters import METADATA, allow, metadata_of, one_of
from stripe_standin.payment_intents import PaymentIntent

_REASONS = ("duplicate", "fraudulent", "requested_by_customer")
_REFERENCE = {"reference_status": "pending", "reference_type": "acquirer_reference_number", "type": "refund"}
_CONSTANT = {
    **dict.fromkeys("customer customer_account receipt_number source_transfer_reversal transfer_reversal".split()),
    "object": "refund",
    "destination_details": {"card": _REFERENCE, "type": "card"},
}


@dataclass
class Refund:
    """Money given back. A refund may fail even after it succeeded."""

    named: ClassVar = ("refund", "id")
    id: str
    charge: Charge
    amount: int
    created: int
    metadata: Mapping[str, str]
    reason: str | None
    status: str
    failure_reason: str | None = None
    pending_reason: str | None = None
    """Why Stripe holds it."""

    @property
    def is_live(self) -> bool:
        """Whether the money is with the customer, or on its way."""
        return self.status not in ("failed", "canceled")

    def as_json(self) -> dict[str, Any]:
        failure = balance.id_for(self.id, "refund_failure")
        failed = {"failure_balance_transaction": failure, "failure_reason": self.failure_reason}
        return {
            **_CONSTANT,
            **shown(self, ("id", "amount", "created", "reason", "status")),
            "balance_transaction": balance.id_for(self.id),
            "charge": self.charge.id,
            "currency": self.charge.currency,
            "metadata": dict(self.metadata),
            "payment_intent": self.charge.payment_intent,
            "payment_method": self.charge.method.id,
            **(failed if self.failure_reason else {}),
            **({"pending_reason": self.pending_reason} if self.pending_reason else {}),
        }


def create(account: Account, request: Request, *, outcome: Fault | None = None) -> dict[str, Any]:
    """POST /v1/refunds: a part of the charge, or all that is not refunded yet."""
    parameters = allow(request, "payment_intent|amount|reason", METADATA)
    reason, metadata = one_of(parameters, "reason", _REASONS), metadata_of(parameters)
    requested = positive_amount(parameters) if "amount" in parameters else None
    charge = _charge_to_refund(account, parameters)
    if outcome is Fault.BALANCE_TOO_LOW:
        raise refused("You do not have enough funds in your Stripe account.", code="balance_insufficient")
    refund = Refund(
        id=account.ids.new("re"),
        charge=charge,
        amount=_amount_to_refund(account, charge, requested),
        created=account.now,
        metadata=metadata,
        reason=reason,
        status="pending" if outcome is Fault.REFUND_PENDING else "succeeded",
    )
    _apply(account, refund)
    return refund.as_json()


def hold(account: Account, refund: Refund, reason: str | None) -> None:
    """Hold the refund for this reason, or send it (None)."""
    before = {"status": refund.status, "pending_reason": refund.pending_reason}
    refund.status, refund.pending_reason = "pending" if reason else "succeeded", reason
    _emit_update(account, refund, before)


def fail(account: Account, refund: Refund, reason: str = "expired_or_canceled_card") -> None:
    """Let a refund fail, even after it succeeded. Its amount can be refunded again."""
    if refund.status == "failed":
        return
    before = {"failure_balance_transaction": None, "failure_reason": None, "status": refund.status}
    refund.status, refund.failure_reason = "failed", reason
    refund.charge.amount_refunded -= refund.amount
    balance.book(account, "refund_failure", refund.id, refund.amount, refund.charge.currency)
    _emit_update(account, refund, before)
    account.emit("refund.failed", refund.as_json())


def _apply(account: Account, refund: Refund) -> None:
    charge = refund.charge
    before = {"amount_refunded": charge.amount_refunded, "refunded": False}
    account.all(Refund)[refund.id] = refund
    charge.amount_refunded += refund.amount
    balance.book(account, "refund", refund.id, -refund.amount, charge.currency)
    account.emit("refund.created", refund.as_json())
    account.emit("charge.refunded", charge.as_json(), before)
    if charge.method.card.refund_fails:
        due = account.clock() + account.behavior.late_refund_seconds
        account.schedule.add(due, partial(fail, account, refund))


def _charge_to_refund(account: Account, parameters: Mapping[str, str]) -> Charge:
    if "payment_intent" not in parameters:
        raise invalid("Missing required param: payment_intent.", param="payment_intent", code="parameter_missing")
    if (intent := account.all(PaymentIntent).get(parameters["payment_intent"])) is None:
        raise missing("payment_intent", parameters["payment_intent"], "payment_intent")
    charge = account.all(Charge).get(intent.latest_charge or "")
    if charge is None or not charge.succeeded:
        raise refused(f"This PaymentIntent ({intent.id}) does not have a successful charge to refund.")
    return charge


def _amount_to_refund(account: Account, charge: Charge, requested: int | None) -> int:
    left = charge.amount - charge.amount_refunded
    error = refused if account.behavior.stores_refused_refunds else invalid
    if is_charged_back(account, charge):
        raise error(f"Charge {charge.id} has been charged back; cannot issue a refund.", code="charge_disputed")
    if left == 0:
        raise error(f"Charge {charge.id} has already been refunded.", code="charge_already_refunded")
    if requested is not None and requested > left:
        raise error(
            f"Refund amount ({in_units(requested, charge.currency)}) is greater than unrefunded amount on charge "
            f"({in_units(left, charge.currency)})",
            param="amount",
        )
    return requested or left


def _emit_update(account: Account, refund: Refund, before: dict[str, Any]) -> None:
    account.emit("charge.refund.updated", refund.as_json(), before)
    account.emit("refund.updated", refund.as_json(), before)
