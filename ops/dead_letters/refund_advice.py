"""What to do with a message about a refund; as advice.py for payments. Pure."""

from onecharge.contract.refunds import RefundOutcomeEvent, RefundRequestedEvent, RefundState, RefundStatus
from onecharge.contract.states import PaymentState
from onecharge.orders.refunds import REFUND_OUTCOMES, StoredRefund
from onecharge.payments.charges.protocol import Payment
from onecharge.payments.refunds.protocol import Refund
from ops.dead_letters.advice import Advice, discard, keep, redrive

_NO_SUCH_REFUND = keep("the order service has no such refund: was its table restored? Nobody has asked for it")


def advise_refund_requested(
    event: RefundRequestedEvent, stored: StoredRefund | None, refund: Refund | None, payment: Payment | None
) -> Advice:
    """Of a message that asks to refund.

    Args:
        stored: the order service's.
        refund: the payment service's row.
    """
    if stored is None:
        return _NO_SUCH_REFUND
    if event.data != stored.requested_event().data:
        return keep("it differs from the stored refund: who has sent it?")
    if stored.status in (RefundStatus.SUCCEEDED, RefundStatus.FAILED):
        return discard(f"the refund is {stored.status}: nothing to do")
    if stored.status is RefundStatus.NEEDS_REVIEW:
        return keep("a person decides about the refund: `python -m ops explain`")
    if payment is None or payment.state is not PaymentState.SUCCEEDED:
        return keep("the payment service does not know the order as paid: there is nothing to refund yet")
    if refund is not None and refund.state is not RefundState.PENDING:
        return redrive(f"the refund is {refund.state}, and the order does not know: its outcome is emitted again")
    return redrive("the refund is PENDING: the worker looks it up at Stripe, and makes it if there is none")


def advise_refund_outcome(event: RefundOutcomeEvent, stored: StoredRefund | None, *, order_is_canceled: bool) -> Advice:
    """Of a message with the outcome of a refund."""
    if stored is None:
        # The payment service itself refunds a canceled order that was charged: there is no request.
        return (
            discard("the refund of a canceled order: nobody has asked for it")
            if order_is_canceled
            else (_NO_SUCH_REFUND)
        )
    transition = REFUND_OUTCOMES[event.type]
    if stored.status in transition.origins and event.data.amount_minor == stored.amount_minor:
        return redrive(f"the refund is {stored.status}, and becomes {transition.status}")
    return discard(f"the refund is {stored.status}: it knows, or knows better")
