"""What to do with a message of a DLQ, by the state of its order and payment. Every decision, pure: no clock, no I/O.

    REDRIVE   something is left to do, and the message does it: send it back
    DISCARD   nothing is left for it to do: a duplicate by now, superseded, or of an order that has ended
    KEEP      leave it in the DLQ: a person, a later time or another message comes first

The advice spares work and surprises. No promise about money rests on it: redrive.py says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from onecharge.contract.events import CancelRequestedEvent, OrderPlaced, OrderPlacedEvent, PaymentOutcomeEvent
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.schema import StoredOrder
from onecharge.orders.transitions import OUTCOMES, WAITING
from onecharge.payments.charges.protocol import FoundIntent, FrozenRequest, Payment


class Action(StrEnum):
    """What to do with a message."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    KEEP = "keep"


@dataclass(frozen=True)
class Advice:
    """What to do with a message, and why."""

    action: Action
    why: str
    can_be_forced: bool = False
    """Whether `redrive --force` sends it back all the same: nothing is known against it, only too little for it."""


def redrive(why: str) -> Advice:
    return Advice(Action.REDRIVE, why)


def discard(why: str, *, can_be_forced: bool = False) -> Advice:
    return Advice(Action.DISCARD, why, can_be_forced)


def keep(why: str, *, can_be_forced: bool = False) -> Advice:
    return Advice(Action.KEEP, why, can_be_forced)


NO_SUCH_ORDER = keep("the order service has no such order: was its table restored? Charging it would serve nobody")
_BY_REVIEW = keep("a person decides about the order: `python -m ops review list`")

# ---------------------------------------------------------------- what no code of this version can read


def advise_unreadable(reason: str, order: StoredOrder | None) -> Advice:
    """Of a message that breaks a rule of this version's code too: it would come back to the DLQ at once.

    Args:
        order: the order that it names, if any can be made out.
    """
    if order is not None and is_unfinished(order):
        return keep(f"still poison ({reason}), and its order is {order.status}", can_be_forced=True)
    return discard(f"still poison ({reason}): this version's code cannot read it either", can_be_forced=True)


def advise_unknown() -> Advice:
    """Of a message that names neither a type nor an order, in a DLQ of several queues: nobody knows its queue."""
    return keep("neither a type nor an order can be read from it, so no queue can be found that it belongs to")


def is_unfinished(order: StoredOrder) -> bool:
    """Whether somebody still waits for the order's payment: the payment service, or a person."""
    return order.status in (*WAITING, OrderStatus.NEEDS_REVIEW)


# ---------------------------------------------------------------- to the payment service


def asks_stripe(event: OrderPlacedEvent, order: StoredOrder | None, payment: Payment | None) -> bool:
    """Whether only Stripe knows the result of the payment: its row is lost, or not final."""
    before_stripe = advise_order_placed(event, order, payment, [])
    return before_stripe.action is Action.REDRIVE and (payment is None or payment.state is PaymentState.PENDING)


def advise_order_placed(
    event: OrderPlacedEvent,
    order: StoredOrder | None,
    payment: Payment | None,
    found: Sequence[FoundIntent] | None,
) -> Advice:
    """Of a message that asks to charge an order.

    Args:
        found: the order's PaymentIntents at Stripe, if they matter (`asks_stripe`); None if Stripe could not be asked.
    """
    data = event.data
    if order is None:
        return NO_SUCH_ORDER
    if _differs(data, order):
        return keep("it differs from the stored order: who has sent it?")
    if order.status in (OrderStatus.PAID, OrderStatus.CANCELED):
        return discard(f"the order is {order.status}: nothing to do")
    newest = max(order.attempt, payment.attempt if payment else 0)
    if data.attempt < newest:
        return discard(f"superseded by attempt {newest}")
    if data.attempt > order.attempt:
        return keep(f"the order knows {order.attempt} attempts only: was its table restored?")
    return _advise_present_attempt(order, payment, found)


def _advise_present_attempt(order: StoredOrder, payment: Payment | None, found: Sequence[FoundIntent] | None) -> Advice:
    """Of the message of an order's present attempt, neither PAID nor CANCELED."""
    match order.status:
        case OrderStatus.PAYMENT_DECLINED:
            return discard("the attempt was declined: another card is another attempt, with a message of its own")
        case OrderStatus.NEEDS_REVIEW:
            return _BY_REVIEW
        case OrderStatus.CANCELING:
            return keep("the order is being canceled, by another message and the reconciler")
        case _:
            pass
    if payment is not None and payment.cancel_requested_at is not None:
        return keep("a cancellation of the payment is requested: the reconciler finishes it")
    if payment is None or payment.state is PaymentState.PENDING:
        return _advise_undecided(payment, found, FrozenRequest.of(order.present_attempt))
    if payment.state is PaymentState.REQUIRES_ACTION and order.status is OrderStatus.REQUIRES_ACTION:
        return keep("it waits for the customer to authenticate: nothing to do until then")
    # The row is final, and the order does not know: a late duplicate makes the row emit its outcome again.
    return redrive(f"the payment is {payment.state}, and the order does not know: its outcome is emitted again")


def _advise_undecided(payment: Payment | None, found: Sequence[FoundIntent] | None, request: FrozenRequest) -> Advice:
    """The row is PENDING, or there is none: Stripe knows."""
    lost = "" if payment else "the payment has no row; "
    if found is None:
        return keep(f"{lost}Stripe could not be asked: try again", can_be_forced=True)
    succeeded = [intent for intent in found if intent.status == "succeeded"]
    if len(succeeded) > 1:
        return keep("several PaymentIntents of the order succeeded: `python -m ops explain`")
    if any(intent.has_other_money(request) for intent in succeeded):
        return keep("a PaymentIntent of the order succeeded with another amount or currency: `python -m ops explain`")
    if succeeded:
        shown = succeeded[0].payment_intent_id
        return redrive(f"{lost}Stripe shows {shown} succeeded: the worker writes that down, and charges nothing")
    return redrive(f"{lost}the order waits for this payment, and Stripe shows none that succeeded")


def _differs(data: OrderPlaced, order: StoredOrder) -> bool:
    """Whether it is not the message that the stored order itself makes. A former attempt has its own payment method."""
    stored = order.present_attempt
    is_present = data.attempt == stored.attempt
    same = stored.model_copy(
        update={
            "attempt": data.attempt,
            "payment_method": stored.payment_method if is_present else data.payment_method,
        }
    )
    return OrderPlaced(**data.model_dump()) != same


def advise_cancel_requested(event: CancelRequestedEvent, order: StoredOrder | None) -> Advice:
    """Of a message that asks to cancel an order."""
    if order is None:
        return NO_SUCH_ORDER
    if _differs(event.data, order):
        return keep("it differs from the stored order: who has sent it?")
    if order.status is OrderStatus.CANCELING:
        return redrive("the order is CANCELING: the worker cancels its payment, or finds it paid")
    if order.status is OrderStatus.NEEDS_REVIEW:
        return _BY_REVIEW
    if order.status in WAITING:
        return keep(f"the order is {order.status}, and no cancellation of it is stored")
    return discard(f"the order is {order.status}: nothing to cancel")


# ---------------------------------------------------------------- to the order service


def advise_payment_outcome(
    event: PaymentOutcomeEvent, order: StoredOrder | None, payment: Payment | None = None
) -> Advice:
    """Of a message with the outcome of a payment. It moves no money; the order takes each outcome once.

    Args:
        payment: its row as it is now: a person may have resolved it since.
    """
    if order is None:
        return keep("the order service has no such order: was its table restored?")
    transition, data = OUTCOMES[event.type], event.data
    is_review = transition.status is OrderStatus.NEEDS_REVIEW
    if is_review and payment is not None and payment.state is not PaymentState.NEEDS_REVIEW:
        return discard(f"the payment is {payment.state} by now: it needs no review any more")
    if order.status in transition.origins and (transition.of_any_attempt or data.attempt == order.attempt):
        return redrive(f"the order is {order.status}, and becomes {transition.status}")
    refunded = data.amount_refunded_minor
    if refunded is not None and refunded != order.stripe_refunded_minor:
        return redrive("the order knows another refunded amount; the newer of the two stays")
    if data.dispute_status is not None and data.dispute_status != order.dispute_status:
        return redrive(f"the order does not know that its dispute is {data.dispute_status}")
    return discard(f"the order is {order.status}: it knows, or knows better")
