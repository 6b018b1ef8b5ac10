"""How what Stripe shows later differs from our rows, and what a row becomes by it: pure. No clock, no I/O.

find_discrepancy          a payment's row, or its absence, and one PaymentIntent
find_refund_discrepancy   a refund's row, or its absence, and Stripe's refunds of its id

`sync` (sync.py) and `ops explain` decide by the same functions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from onecharge.contract.refunds import RefundState
from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rules import (
    OTHER_MONEY,
    SEVERAL_SUCCEEDED,
    CancelReason,
    Finalize,
    Payment,
    StripeIntent,
    final_of,
    is_stopped_by_hand,
    review_of_stopped,
)
from onecharge.payments.refund_rules import Refund, StripeRefund
from onecharge.runtime.alarms import Cause

REQUIRES_ACTION_EXPIRED = "requires_action_expired"
"""The decline code of an attempt whose customer did not authenticate in time."""


class Discrepancy(StrEnum):
    """How a PaymentIntent that an event or a row names differs from the row of its order."""

    NONE = "the states agree, or a worker will finalize the row"
    LOST_ROW = "the PaymentIntent succeeded, and there is no row: the row is written again"
    WITHOUT_ROW = "the PaymentIntent succeeded, there is no row, and it says too little to write one"
    PAID = "the PaymentIntent succeeded: the row becomes SUCCEEDED"
    PAID_LATE = "it succeeded after the attempt was declined: the row becomes SUCCEEDED"
    PAID_TWICE = "another PaymentIntent of the same order succeeded as well: a person has to see it"
    PAID_AFTER_CANCEL = "it succeeded although the order is canceled: it is refunded"
    MONEY_DIFFERS = "it succeeded with another amount or currency than was frozen"
    DECLINED = "the customer's bank declined: the row becomes DECLINED"
    EXPIRED = "nobody acted in time: it is canceled, then the row becomes DECLINED"
    CANCELED = "it was canceled for the customer: the row becomes CANCELED"
    STOPPED = "a person canceled it at Stripe: a person has to decide about the order"
    REVERSED = "the row says SUCCEEDED, and its PaymentIntent does not"


CAUSES: Mapping[Discrepancy, Cause] = {
    Discrepancy.LOST_ROW: Cause.ROW_LOST,
    Discrepancy.WITHOUT_ROW: Cause.ROW_LOST,
    Discrepancy.PAID_LATE: Cause.PAID_AFTER_DECLINE,
    Discrepancy.PAID_TWICE: Cause.MONEY_DIFFERS,
    Discrepancy.MONEY_DIFFERS: Cause.MONEY_DIFFERS,
    Discrepancy.STOPPED: Cause.NEEDS_REVIEW,
    Discrepancy.REVERSED: Cause.MONEY_DIFFERS,
}
"""The alarm that each of them raises. (The refund of PAID_AFTER_CANCEL raises its own.)"""


def find_discrepancy(
    payment: Payment | None, intent: StripeIntent, *, now: float, requires_action_seconds: int
) -> Discrepancy:
    """Compare the row, or its absence, with the PaymentIntent.

    Args:
        now: epoch seconds.
        requires_action_seconds: how long the customer may take to authenticate.
    """
    is_paid = intent.status == "succeeded"
    if payment is None:
        lost = Discrepancy.WITHOUT_ROW if intent.placed_at is None else Discrepancy.LOST_ROW
        return lost if is_paid else Discrepancy.NONE
    if is_paid:
        return _of_success(payment, intent, now)
    is_own = payment.is_of(intent.payment_intent_id)
    if is_own and payment.state is PaymentState.SUCCEEDED:
        return Discrepancy.REVERSED
    if is_own and payment.state is PaymentState.REQUIRES_ACTION:
        expired = now - (payment.finalized_at or payment.claimed_at) >= requires_action_seconds
        return _of_requires_action(payment, intent, expired=expired)
    return Discrepancy.NONE


def _of_success(payment: Payment, intent: StripeIntent, now: float) -> Discrepancy:
    is_own = payment.is_of(intent.payment_intent_id)
    if is_own and payment.state is PaymentState.PENDING and now < payment.lease_expires_at:
        # The lease owner finalizes it; if it crashes, SQS delivers the message again.
        return Discrepancy.NONE
    if payment.state is PaymentState.SUCCEEDED:
        return Discrepancy.NONE if is_own or intent.is_refunded_in_full else Discrepancy.PAID_TWICE
    if payment.state is PaymentState.CANCELED:
        return Discrepancy.PAID_AFTER_CANCEL
    if intent.money_differs_from(payment.request):
        return Discrepancy.NONE if payment.state is PaymentState.NEEDS_REVIEW else Discrepancy.MONEY_DIFFERS
    if payment.state is PaymentState.NEEDS_REVIEW and payment.decline_code == SEVERAL_SUCCEEDED:
        # One of them may be refunded by now, and this may be an event of that one: a person decides which of them pays.
        return Discrepancy.NONE
    return Discrepancy.PAID_LATE if payment.state is PaymentState.DECLINED else Discrepancy.PAID


def _of_requires_action(payment: Payment, intent: StripeIntent, *, expired: bool) -> Discrepancy:
    if intent.is_canceled_by_customer:
        return Discrepancy.CANCELED
    if payment.cancel_requested_at is not None:
        # DECLINED would take the row out of the index of unfinished rows: `reconcile_row` finishes the cancellation.
        return Discrepancy.NONE
    if intent.status == "canceled":
        return Discrepancy.STOPPED if is_stopped_by_hand(payment, intent) else Discrepancy.DECLINED
    if intent.status == "requires_action":
        return Discrepancy.EXPIRED if expired else Discrepancy.NONE
    return Discrepancy.DECLINED if intent.status == "requires_payment_method" else Discrepancy.NONE


def final_after(discrepancy: Discrepancy, intent: StripeIntent, payment: Payment) -> Finalize | None:
    """What the row becomes by it; None if nothing."""
    match discrepancy:
        case Discrepancy.PAID | Discrepancy.PAID_LATE:
            return final_of(PaymentState.SUCCEEDED, intent, payment)
        case Discrepancy.MONEY_DIFFERS:
            final = final_of(PaymentState.NEEDS_REVIEW, intent, payment)
            return replace(final, code=OTHER_MONEY, after_charge=intent.after_charge)
        case Discrepancy.DECLINED:
            # A PaymentIntent that requires action is canceled as abandoned only when it expires.
            expired = intent.cancellation_reason == CancelReason.ABANDONED
            code = REQUIRES_ACTION_EXPIRED if expired else intent.decline_code or intent.status
            return replace(final_of(PaymentState.DECLINED, intent, payment), code=code)
        case Discrepancy.CANCELED:
            return final_of(PaymentState.CANCELED, intent, payment)
        case Discrepancy.STOPPED:
            return review_of_stopped(intent)
    return None


# ---------------------------------------------------------------- a refund


class RefundDiscrepancy(StrEnum):
    """How Stripe's refunds of one refund id differ from its row."""

    NONE = "row and Stripe agree, or a worker will finalize the row"
    RETURNED = "it failed, whatever the row says: the row becomes FAILED"
    LOST_ROW = "it failed, and there is no row: the row is written again as FAILED"
    MADE_AFTER_FAILED = "the row says FAILED, and Stripe shows a refund"
    SEVERAL = "several refunds of one id"
    PENDING = "Stripe says another reason why it is pending, or sends it by now: the row says so"


REFUND_CAUSES: Mapping[RefundDiscrepancy, Cause] = {
    RefundDiscrepancy.RETURNED: Cause.REFUND_FAILED,
    RefundDiscrepancy.LOST_ROW: Cause.ROW_LOST,
    RefundDiscrepancy.MADE_AFTER_FAILED: Cause.MONEY_DIFFERS,
    RefundDiscrepancy.SEVERAL: Cause.MONEY_DIFFERS,
}


def find_refund_discrepancy(refund: Refund | None, found: Sequence[StripeRefund]) -> RefundDiscrepancy:
    """Compare the row with Stripe's refunds of its id: with all of them, so the order of events does not matter.

    A PENDING row takes the failure as well: its worker may have read `pending` before, and would write SUCCEEDED after
    the only event that says otherwise.
    """
    match found:
        case []:
            return RefundDiscrepancy.NONE
        case [one]:
            return _of_refund(refund, one)
        case _:
            return RefundDiscrepancy.SEVERAL


def _of_refund(refund: Refund | None, one: StripeRefund) -> RefundDiscrepancy:
    if refund is None:
        # One that was made has no row for a moment: its worker writes it.
        return RefundDiscrepancy.LOST_ROW if one.has_failed else RefundDiscrepancy.NONE
    if one.has_failed:
        is_unaware = refund.state in (RefundState.PENDING, RefundState.SUCCEEDED)
        return RefundDiscrepancy.RETURNED if is_unaware else RefundDiscrepancy.NONE
    if refund.state is RefundState.FAILED:
        return RefundDiscrepancy.MADE_AFTER_FAILED
    is_other = refund.state is RefundState.SUCCEEDED and refund.pending_reason != one.pending_reason
    return RefundDiscrepancy.PENDING if is_other else RefundDiscrepancy.NONE
