"""How a payment's row and its PaymentIntent at Stripe differ, for webhooks and the scheduled run. Pure, as protocol.py.

What Stripe says later wins, except that SUCCEEDED is never overwritten. Nothing is confirmed here.
"""

from enum import StrEnum

from onecharge.contract.states import PaymentState
from onecharge.payments.charges.protocol import FoundIntent, Payment


class Discrepancy(StrEnum):
    """How a PaymentIntent that an event or the reconciler names differs from the row of its order."""

    NONE = "row and Stripe agree, or a worker will finalize the row"
    LOST_ROW = "the PaymentIntent succeeded, and there is no row: the row is written anew"
    PAID = "the PaymentIntent succeeded: the row becomes SUCCEEDED"
    PAID_LATE = "it succeeded after the attempt was declined: the row becomes SUCCEEDED"
    PAID_TWICE = "another PaymentIntent of the same order succeeded as well: a person has to see it"
    PAID_AFTER_CANCEL = "it succeeded although the order is canceled: it is refunded"
    OTHER_MONEY = "it succeeded with another amount or currency than was frozen"
    DECLINED = "the customer's bank declined: the row becomes DECLINED"
    EXPIRED = "nobody acted in time: it is canceled, then the row becomes DECLINED"
    CANCELED = "it was canceled for the customer: the row becomes CANCELED"
    REVERSED = "the row says SUCCEEDED, and its PaymentIntent does not"


def find_discrepancy(
    payment: Payment | None, intent: FoundIntent, *, now: float, requires_action_seconds: int
) -> Discrepancy:
    """Compare the row, or its absence, with the PaymentIntent.

    Args:
        now: epoch seconds.
        requires_action_seconds: how long the customer may take to authenticate.
    """
    is_paid = intent.status == "succeeded"
    if payment is None:
        return Discrepancy.LOST_ROW if is_paid else Discrepancy.NONE
    if is_paid:
        return _of_success(payment, intent, now)
    is_own = intent.payment_intent_id == payment.payment_intent_id
    if is_own and payment.state is PaymentState.SUCCEEDED:
        return Discrepancy.REVERSED
    if is_own and payment.state is PaymentState.REQUIRES_ACTION:
        expired = now - (payment.finalized_at or payment.claimed_at) >= requires_action_seconds
        return _of_requires_action(intent, expired=expired)
    return Discrepancy.NONE


def _of_success(payment: Payment, intent: FoundIntent, now: float) -> Discrepancy:
    is_own = intent.payment_intent_id == payment.payment_intent_id
    if is_own and payment.state is PaymentState.PENDING and now < payment.lease_expires_at:
        # The lease owner finalizes it; if it crashes, SQS delivers the message again.
        return Discrepancy.NONE
    if payment.state is PaymentState.SUCCEEDED:
        return Discrepancy.NONE if is_own else Discrepancy.PAID_TWICE
    if payment.state is PaymentState.CANCELED:
        return Discrepancy.PAID_AFTER_CANCEL
    if intent.has_other_money(payment.request):
        return Discrepancy.NONE if payment.state is PaymentState.NEEDS_REVIEW else Discrepancy.OTHER_MONEY
    return Discrepancy.PAID_LATE if payment.state is PaymentState.DECLINED else Discrepancy.PAID


def _of_requires_action(intent: FoundIntent, *, expired: bool) -> Discrepancy:
    if intent.is_canceled_by_customer:
        return Discrepancy.CANCELED
    if intent.status == "canceled":
        return Discrepancy.DECLINED
    if intent.requires_action:
        return Discrepancy.EXPIRED if expired else Discrepancy.NONE
    return Discrepancy.DECLINED if intent.status == "requires_payment_method" else Discrepancy.NONE
