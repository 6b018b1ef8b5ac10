"""How what Stripe shows later differs from the payment's row, and what the row becomes by it: pure. No clock, no I/O.

`sync` (sync.py) and `ops explain` decide by the same function.
"""

from dataclasses import dataclass, field
from typing import Any

from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rules import (
    HELD_AS_DUPLICATE,
    Outcome,
    final_changes,
    reason_of_cancellation,
    refunds_and_dispute,
)
from onecharge.payments.payments_table import UNPAID, Payment, pending_since
from onecharge.payments.stripe_responses import StripeIntent
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.alarms import Cause


@dataclass(frozen=True)
class Difference:
    """What a PaymentIntent says that the row does not. Without changes, a rule or a person has to act."""

    says: str
    changes: dict[str, Any] = field(default_factory=dict)
    """What sync writes to the row, or as the row, if it was lost."""
    alarm: Cause | None = None
    expires: bool = False
    """sync cancels the PaymentIntent at Stripe, and compares again."""


def find_difference(
    row: Payment | None, intent: StripeIntent, *, shop: str, now: int, requires_action_seconds: int
) -> Difference | None:
    """Compare the row of the PaymentIntent's order, or its absence, with the PaymentIntent.

    Args:
        now: epoch seconds.
        requires_action_seconds: how long the customer may take to authenticate.
    """
    is_paid = intent.status == "succeeded"
    if row is None:
        return _without_row(intent, shop, now) if is_paid else None
    if row.payment_intent_id != intent.payment_intent_id:
        return _of_another(row, intent) if is_paid else None
    if is_paid:
        return _of_success(row, intent, now)
    if row.state is PaymentState.SUCCEEDED:
        return Difference("the row says SUCCEEDED, and its PaymentIntent does not", alarm=Cause.MONEY_DIFFERS)
    if intent.is_duplicate_of(row.request.money) and row.state in UNPAID and row.lease_expires_at <= now:
        held = {**pending_since(row.request.order_id, now), **HELD_AS_DUPLICATE}
        return Difference("it was canceled as a duplicate of another: the row is held", held, Cause.HELD)
    if intent.status == "canceled" and row.state in (PaymentState.DECLINED, PaymentState.REQUIRES_ACTION):
        outcome = Outcome(PaymentState.CANCELED, intent, reason_of_cancellation(intent))
        return Difference("it was canceled: the row becomes CANCELED", final_changes(outcome, now))
    if row.state is not PaymentState.REQUIRES_ACTION:
        # A worker finishes what is PENDING, and what is to be canceled is.
        return None
    if intent.status == "requires_payment_method":
        outcome = Outcome(PaymentState.DECLINED, intent, intent.error_code or intent.status)
        return Difference("the customer's bank declined: the row becomes DECLINED", final_changes(outcome, now))
    if intent.status == "requires_action" and now - (row.finalized_at or 0) >= requires_action_seconds:
        return Difference("3-D Secure was not finished in time: it is canceled", expires=True)
    return None


def _of_success(row: Payment, intent: StripeIntent, now: int) -> Difference | None:
    if row.state is PaymentState.SUCCEEDED:
        changes = refunds_and_dispute(intent)
        known = {name: getattr(row, name) for name in changes}
        return Difference("its refunds or its dispute changed", changes) if changes != known else None
    if row.state is PaymentState.CANCELED:
        says = "it succeeded although the order is CANCELED"
        return None if intent.is_returned else Difference(says, alarm=Cause.MONEY_DIFFERS)
    if row.state is PaymentState.PENDING and now < row.lease_expires_at:
        # The lease owner finalizes it; if it crashes, SQS delivers the message again. reconcile reads the event again.
        return None
    if intent.money != row.request.money:
        return Difference("it succeeded with another amount or currency than was frozen", alarm=Cause.MONEY_DIFFERS)
    is_late = row.state is PaymentState.DECLINED
    return Difference(
        "it succeeded: the row becomes SUCCEEDED",
        final_changes(Outcome(PaymentState.SUCCEEDED, intent), now),
        alarm=Cause.PAID_AFTER_DECLINE if is_late else None,
    )


# ---------------------------------------------------------------- a row that was lost, or names another PaymentIntent


def _without_row(intent: StripeIntent, shop: str, now: int) -> Difference | None:
    if intent.shop != shop:
        return None
    if (intent.charged_at or now) + RETENTION_SECONDS <= now:
        # It was not lost, it has expired: written again, it would answer for the next order under the same key.
        return None
    if not (intent.customer_id and intent.is_described):
        says = "it succeeded, there is no row, and metadata and description do not name the same order"
        return Difference(says, alarm=Cause.ROW_LOST)
    return Difference("it succeeded, and there is no row: it is written again", recovered(intent, now), Cause.ROW_LOST)


def _of_another(row: Payment, intent: StripeIntent) -> Difference | None:
    if intent.is_returned:
        return None
    names = "another PaymentIntent" if row.payment_intent_id else "no PaymentIntent"
    return Difference(f"it succeeded, and the order's row names {names}", alarm=Cause.MONEY_DIFFERS)


def recovered(intent: StripeIntent, now: int) -> dict[str, Any]:
    """A lost row, written again from its PaymentIntent that succeeded. It expires when the lost one would have."""
    return {
        "amount_minor": intent.amount_minor,
        "currency": intent.currency,
        "customer_id": intent.customer_id,
        "placed_at": intent.created,
        "attempt": 1,
        "correlation_id": "recovered",
        "claimed_at": now,
        **final_changes(Outcome(PaymentState.SUCCEEDED, intent), intent.charged_at or now),
    }
