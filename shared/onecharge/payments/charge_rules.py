"""The charge protocol's decisions, as pure functions: no clock, no I/O. docs/protocol.md has the rules."""

from dataclasses import dataclass
from typing import Any

from onecharge.contract.states import PaymentState
from onecharge.payments.payments_table import DUPLICATE, Payment
from onecharge.payments.stripe_responses import Deferred, StripeIntent
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.alarms import Cause

CREATE_SECONDS = 22 * 3600
"""How long after the start of its window an order's PaymentIntent may be created.

Stripe keeps an idempotency key for at least 24 hours (Stripe documentation, "Idempotent requests"). The two spare hours
allow each of two clocks to be an hour off: the one that stamped the order, and the one that checks its age.
"""

KEY_AGES_SECONDS = (0, 30, 600, 3600, 6 * 3600)
"""The age of the window from which each of its keys may be used. If a key replays a failure, the next one is tried.

So if Stripe stores a 500 under each key during a few minutes' outage, a fresh order still has keys left.
"""

EXPIRED, NOT_CHARGEABLE = "expired", "not_chargeable"
"""Reasons for CANCELED: 3-D Secure was not finished in time; Stripe refuses the amount or the currency."""


def window_age_seconds(row: Payment, now: float) -> float:
    """Seconds since the row's window began: when the order was released, or else when it was placed."""
    return now - (row.request.placed_at if row.released_at is None else row.released_at)


def may_create(row: Payment, now: float) -> bool:
    """Whether Stripe is sure to remember the keys of the row's window."""
    return window_age_seconds(row, now) < CREATE_SECONDS


def is_held(row: Payment, now: float) -> bool:
    """Whether the order's PaymentIntent can be created only after an operator's release."""
    may_not = row.held_because is not None or not may_create(row, now)
    return row.state is PaymentState.PENDING and row.payment_intent_id is None and may_not


class Held(Deferred):
    """No PaymentIntent may be created: the row waits for an operator's `release`, and its message is deleted."""


@dataclass(frozen=True)
class Outcome:
    """The attempt's outcome, which is written next; REQUIRES_ACTION waits for the customer."""

    state: PaymentState
    intent: StripeIntent | None = None
    """None if Stripe refuses to create one."""
    reason: str | None = None
    """For DECLINED, Stripe's code; for CANCELED, the cause, or None if a person asked for it."""


@dataclass(frozen=True)
class Confirm:
    """Confirm the row's PaymentIntent with the attempt's payment method."""


@dataclass(frozen=True)
class Cancel:
    """Cancel the PaymentIntent, then decide by its final status. Stripe settles the race with a confirm."""


type Step = Outcome | Confirm | Cancel | Deferred


def decide(row: Payment, intent: StripeIntent, *, is_answered: bool) -> Step:
    """The next step for a claimed row, by its PaymentIntent's status. Deferred means that the lease is given back.

    Args:
        is_answered: whether Stripe has answered this attempt's confirm. If so, a PaymentIntent still open was declined.
    """
    if intent.is_duplicate_of(row.request.money):
        return Held(DUPLICATE, alarm=Cause.HELD, kept=HELD_AS_DUPLICATE)
    if intent.status == "canceled":
        # It can never be charged, no matter who canceled it or what its amount is.
        return Outcome(PaymentState.CANCELED, intent, reason_of_cancellation(intent))
    if intent.money != row.request.money:
        return Deferred("the PaymentIntent's amount or currency is not the order's", alarm=Cause.MONEY_DIFFERS)
    if intent.status == "succeeded":
        return Outcome(PaymentState.SUCCEEDED, intent)
    if intent.status == "processing":
        return Deferred("Stripe is processing it")
    if not intent.is_open:
        return Deferred(f"unexpected status {intent.status}", alarm=Cause.STRIPE_INCONCLUSIVE)
    if row.cancel_requested_at is not None:
        return Cancel()
    if intent.status == "requires_action":
        return Outcome(PaymentState.REQUIRES_ACTION, intent)
    if is_answered:
        return Outcome(PaymentState.DECLINED, intent, intent.error_code or "card_declined")
    return Confirm()


def final_changes(outcome: Outcome, now: int) -> dict[str, Any]:
    """The attributes to write for an outcome. In REQUIRES_ACTION, the row stays unfinished, and does not expire."""
    changes: dict[str, Any] = {
        "state": outcome.state,
        "finalized_at": now,
        "reason": outcome.reason,
        "lease_owner": None,
        "lease_expires_at": 0,
    }
    if outcome.intent:
        changes["payment_intent_id"] = outcome.intent.payment_intent_id
    if outcome.intent and outcome.state is PaymentState.SUCCEEDED:
        changes |= refunds_and_dispute(outcome.intent)
    if outcome.state is not PaymentState.REQUIRES_ACTION:
        changes |= {"expires_at": now + RETENTION_SECONDS, "unfinished_shard": None, "unfinished_claimed_at": None}
    return changes


def refunds_and_dispute(intent: StripeIntent) -> dict[str, Any]:
    """The row's attributes for the refunds and the dispute of a PaymentIntent that succeeded."""
    refunded: dict[str, Any] = {"amount_refunded_minor": intent.amount_refunded_minor}
    if intent.dispute is None:
        # The dispute was not read, or there is none: the row keeps the one it has.
        return refunded
    return {**refunded, "dispute_id": intent.dispute.dispute_id, "dispute_status": intent.dispute.status}


# ---------------------------------------------------------------- what it was canceled for


HELD_AS_DUPLICATE = {"payment_intent_id": None, "held_because": DUPLICATE}
"""What a row that names a duplicate becomes."""


def reason_of_cancellation(intent: StripeIntent) -> str | None:
    """Why the order was canceled, as shown to the customer; None if a person asked for it."""
    return EXPIRED if intent.cancellation_reason == "abandoned" else None
