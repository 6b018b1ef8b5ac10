"""What to do with a message of a DLQ, by the state of its order and refund.

    REDRIVE   something is left to do, and the message does it: send it back
    DISCARD   nothing is left for it to do: a duplicate by now, superseded, or of an order that has ended
    KEEP      leave it in the DLQ: a person, a later time or another message comes first

An outcome of a payment or a refund is sent back: it moves no money, and update_order ignores a stale one.

`advise` reads the order and its refund; the decisions below it are pure. The worker that receives the message consults
the payment's row and Stripe. The advice spares work and surprises; no promise about money rests on it (dlq_letters.py
says why).
"""

from dataclasses import dataclass
from enum import StrEnum

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError

from onecharge.contract.events import (
    CancelRequestedEvent,
    Event,
    EventType,
    OrderPlaced,
    OrderPlacedEvent,
    PaymentOutcomeEvent,
    reason_of,
)
from onecharge.contract.refunds import RefundOutcomeEvent, RefundRequestedEvent, RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStore
from onecharge.orders.transitions import waits
from onecharge.payments.charges.protocol import Payment
from onecharge.payments.charges.store import PaymentStore
from ops.connection import Stack
from ops.dlq_letters import DeadLetter, destination_of


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
    """Whether `redrive --force` sends it back all the same: a release may have learned to read it."""


def redrive(why: str) -> Advice:
    return Advice(Action.REDRIVE, why)


def discard(why: str) -> Advice:
    return Advice(Action.DISCARD, why)


def keep(why: str) -> Advice:
    return Advice(Action.KEEP, why)


NO_SUCH_ORDER = keep("the order service has no such order: was its table restored? Charging it would pay for nothing")
NO_SUCH_REFUND = keep("the order service has no such refund: was its table restored? It was never requested")
BY_REVIEW = keep("a person decides about the order: `python -m ops review list`")
DIFFERS = keep("it differs from what is stored: who has sent it?")

# ---------------------------------------------------------------- reading what is known


def advise(stack: Stack, letter: DeadLetter) -> Advice:
    """What to do with the message, by what is known at this moment; keep it if that cannot be found out."""
    try:
        return _advise_letter(stack, letter)
    except (BotoCoreError, ClientError) as error:
        return keep(f"it could not be consulted: {error}")
    except ValueError:  # Of an item that breaks its schema; the item's values stay out of it.
        return keep("the item of its order or refund cannot be read: `python -m ops explain`")


def _advise_letter(stack: Stack, letter: DeadLetter) -> Advice:
    destination = destination_of(letter)
    if destination is None and letter.event_type is None and letter.order_id is None:
        return keep("neither a type nor an order can be read from it, so no queue can be found that it belongs to")
    if destination is None:
        return keep(f"no queue takes messages of the type {letter.event_type}")
    try:
        event = destination.adapter.validate_json(letter.event_json)
    except ValidationError as invalid:
        return advise_unreadable(reason_of(invalid), _order(stack, letter.order_id))
    return _advise_event(stack, event)


def _advise_event(stack: Stack, event: Event) -> Advice:
    order_id = event.data.order_id
    order = _order(stack, order_id)
    match event:
        case OrderPlacedEvent() | CancelRequestedEvent():
            return advise_request(event, order)
        case PaymentOutcomeEvent():
            payment = PaymentStore(stack.dynamodb, stack.resource("PaymentsTable")).read(order_id)
            return advise_payment_outcome(event, order, payment)
        case RefundRequestedEvent():
            return advise_refund_requested(event, _stored_refund(stack, event))
        case RefundOutcomeEvent():
            is_canceled = order is not None and order.status is OrderStatus.CANCELED
            return advise_refund_outcome(_stored_refund(stack, event), order_is_canceled=is_canceled)
        case _:
            return keep(f"there is no rule for messages of the type {event.type}")


def _order(stack: Stack, order_id: str | None) -> StoredOrder | None:
    return OrderStore(stack.dynamodb, stack.resource("OrdersTable")).find(order_id) if order_id else None


def _stored_refund(stack: Stack, event: RefundRequestedEvent | RefundOutcomeEvent) -> StoredRefund | None:
    item = stack.item("OrderRefundsTable", order_id=event.data.order_id, refund_id=event.data.refund_id)
    return StoredRefund.from_item(item) if item else None


# ---------------------------------------------------------------- unreadable


def advise_unreadable(reason: str, order: StoredOrder | None) -> Advice:
    """Of a message that this version's code cannot read either: it would come back to the DLQ immediately.

    Args:
        order: the order that it names, if any can be made out.
    """
    if order is not None and waits(order.status):
        return Advice(Action.KEEP, f"still poison ({reason}), and its order is {order.status}", can_be_forced=True)
    why = f"still poison ({reason}): this version's code cannot read it either"
    return Advice(Action.DISCARD, why, can_be_forced=True)


# ---------------------------------------------------------------- to the payment service


def advise_request(event: OrderPlacedEvent | CancelRequestedEvent, order: StoredOrder | None) -> Advice:
    """Of a message that asks to charge an order, or to cancel it."""
    if order is None:
        return NO_SUCH_ORDER
    if _differs(event.data, order):
        return DIFFERS
    if isinstance(event, CancelRequestedEvent):
        return _advise_to_cancel(order)
    return _advise_to_charge(event.data.attempt, order)


def _advise_to_charge(attempt: int, order: StoredOrder) -> Advice:
    if attempt < order.attempt:
        return discard(f"superseded by attempt {order.attempt}")
    if attempt > order.attempt:
        return keep(f"the order knows {order.attempt} attempts only: was its table restored?")
    match order.status:
        case OrderStatus.PENDING | OrderStatus.REQUIRES_ACTION:
            return redrive(f"the order is {order.status}: the worker charges it, or finds what was decided")
        case OrderStatus.CANCELING:
            return keep("the order is being canceled, by another message and the reconciler")
        case OrderStatus.NEEDS_REVIEW:
            return BY_REVIEW
        case _:  # Another card is another attempt, with a message of its own.
            return discard(f"the order is {order.status}: nothing to do")


def _differs(data: OrderPlaced, order: StoredOrder) -> bool:
    """Whether the stored order itself makes another message. An earlier attempt has its own payment method."""
    stored = order.current_attempt
    changes: dict[str, object] = {"attempt": data.attempt}
    if data.attempt != stored.attempt:
        changes["payment_method"] = data.payment_method
    return OrderPlaced(**data.model_dump()) != stored.model_copy(update=changes)


def _advise_to_cancel(order: StoredOrder) -> Advice:
    if order.status is OrderStatus.CANCELING:
        return redrive("the order is CANCELING: the worker cancels its payment, or finds it paid")
    if order.status is OrderStatus.NEEDS_REVIEW:
        return BY_REVIEW
    if waits(order.status):
        return keep(f"the order is {order.status}, and no cancellation of it is stored")
    return discard(f"the order is {order.status}: nothing to cancel")


def advise_refund_requested(event: RefundRequestedEvent, stored: StoredRefund | None) -> Advice:
    """Of a message that asks to refund; `stored` is the order service's refund."""
    if stored is None:
        return NO_SUCH_REFUND
    if event.data != stored.requested_event().data:
        return DIFFERS
    if stored.status in (RefundState.SUCCEEDED, RefundState.FAILED):
        return discard(f"the refund is {stored.status}: nothing to do")
    if stored.status is RefundState.NEEDS_REVIEW:
        return keep("a person decides about the refund: `python -m ops explain`")
    return redrive("the refund is PENDING: the worker looks it up at Stripe, and makes it if there is none")


# ---------------------------------------------------------------- to the order service


def advise_payment_outcome(event: PaymentOutcomeEvent, order: StoredOrder | None, payment: Payment | None) -> Advice:
    """Of a message with the outcome of a payment. It moves no money; the order takes each outcome once.

    Args:
        payment: its row as it is now: a person may have resolved it since.
    """
    if order is None:
        return keep("the order service has no such order: was its table restored?")
    is_review = event.type == EventType.PAYMENT_NEEDS_REVIEW
    if is_review and payment is not None and payment.state is not PaymentState.NEEDS_REVIEW:
        return discard(f"the payment is {payment.state} by now: it needs no review any more")
    return redrive(f"the order, which is {order.status}, takes it once, and ignores it if it knows better")


def advise_refund_outcome(stored: StoredRefund | None, *, order_is_canceled: bool) -> Advice:
    """Of a message with the outcome of a refund, which is `stored` by the order service."""
    if stored is None and order_is_canceled:
        # The payment service itself refunds a canceled order that was charged: there is no request.
        return discard("the refund of a canceled order: it was not requested")
    if stored is None:
        return NO_SUCH_REFUND
    return redrive(f"the refund, which is {stored.status}, takes it once, and ignores it if it knows better")
