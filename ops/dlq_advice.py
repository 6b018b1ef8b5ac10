"""What to do with a message of a DLQ, by the state of its order or refund.

    REDRIVE   the order or refund waits for it: send it back
    DISCARD   it has nothing left to do
    KEEP      leave it in the DLQ: a person, a later time or another message comes first

It saves a person a useless redrive. No promise about money rests on it: the worker that receives the message asks row
and Stripe itself (dlq_letters.py says why). An outcome is sent back: the order ignores a stale one.
"""

import time
from dataclasses import dataclass
from enum import StrEnum

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError

from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent, reason_of
from onecharge.contract.refunds import RefundOutcomeEvent, RefundRequestedEvent, RefundState
from onecharge.contract.states import OrderStatus
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStore
from onecharge.orders.transitions import WAITING
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.charge_rules import CREATE_SECONDS, may_create
from onecharge.payments.rows import FINAL, Payment
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
    is_held: bool = False
    """Whether the worker will hold the order: its PaymentIntent may not be created any more."""


def advise(stack: Stack, letter: DeadLetter) -> Advice:
    """What to do with the message, by what is known at this moment; keep it if that cannot be found out."""
    try:
        return _advise(stack, letter)
    except (BotoCoreError, ClientError) as error:
        return Advice(Action.KEEP, f"it could not be consulted: {error}")
    except ValueError:  # Of an item that breaks its schema; the item's values stay out of it.
        return Advice(Action.KEEP, "the item of its order or refund cannot be read: `python -m ops explain`")


def _advise(stack: Stack, letter: DeadLetter) -> Advice:
    destination = destination_of(letter)
    if destination is None:
        return Advice(Action.KEEP, f"no queue takes messages of the type {letter.event_type}")
    orders = OrderStore(stack.dynamodb, stack.resource("OrdersTable"))
    order = orders.find(letter.order_id) if letter.order_id else None
    try:
        event = destination.adapter.validate_json(letter.event_json)
    except ValidationError as invalid:
        return advise_unreadable(reason_of(invalid), order)
    if isinstance(event, OrderPlacedEvent | CancelRequestedEvent):
        row = PaymentStore(stack.dynamodb, stack.resource("PaymentsTable")).read(event.data.order_id)
        return advise_request(event, order, row, now=time.time())
    if not isinstance(event, RefundRequestedEvent | RefundOutcomeEvent):
        return advise_outcome(order)
    item = stack.item("OrderRefundsTable", order_id=event.data.order_id, refund_id=event.data.refund_id)
    refund = StoredRefund.from_item(item) if item else None
    return advise_refund(event, refund) if isinstance(event, RefundRequestedEvent) else advise_outcome(refund)


def advise_unreadable(reason: str, order: StoredOrder | None) -> Advice:
    """It would come back to the DLQ immediately. `order` is what it names, if that can be made out."""
    if order is not None and order.status in WAITING:
        return Advice(Action.KEEP, f"still poison ({reason}), and its order is {order.status}", can_be_forced=True)
    why = f"still poison ({reason}): this version's code cannot read it either"
    return Advice(Action.DISCARD, why, can_be_forced=True)


def advise_request(
    event: OrderPlacedEvent | CancelRequestedEvent, order: StoredOrder | None, row: Payment | None, *, now: float
) -> Advice:
    """A message that asks to charge an order, or to cancel it."""
    if order is None:
        return Advice(Action.KEEP, "the order service has no such order: was its table restored? Nobody would get it")
    if event.data.attempt < order.attempt:
        return Advice(Action.DISCARD, f"superseded by attempt {order.attempt}")
    if event.data.model_dump() != order.current_attempt.model_dump():
        return Advice(Action.KEEP, "it differs from what is stored: who has sent it, or was the table restored?")
    is_cancel, status = isinstance(event, CancelRequestedEvent), f"the order is {order.status}"
    if order.status in ({OrderStatus.CANCELING} if is_cancel else {OrderStatus.PENDING, OrderStatus.REQUIRES_ACTION}):
        if _will_be_held(event, row, now):
            return Advice(Action.REDRIVE, f"{status}: it will be held, `release` it then", is_held=True)
        return Advice(Action.REDRIVE, f"{status}: the worker asks its row and Stripe what is left to do")
    if order.status in WAITING:
        return Advice(Action.KEEP, f"{status}: it waits for another message")
    return Advice(Action.DISCARD, f"{status}: nothing to do")


def _will_be_held(event: OrderPlacedEvent | CancelRequestedEvent, row: Payment | None, now: float) -> bool:
    """Whether the worker may not create the order's PaymentIntent any more, and the row has none."""
    if row is None:
        return now - event.data.placed_at.timestamp() >= CREATE_SECONDS
    return row.payment_intent_id is None and row.state not in FINAL and not may_create(row, now)


def advise_refund(event: RefundRequestedEvent, refund: StoredRefund | None) -> Advice:
    """Of a message that asks to refund."""
    if refund is None or event.data != refund.requested_event().data:
        return Advice(Action.KEEP, "the order service has no such refund: who has sent it, or was its table restored?")
    if refund.status is RefundState.PENDING:
        return Advice(Action.REDRIVE, "the refund is PENDING: the worker looks it up at Stripe, and makes it once")
    if refund.status is RefundState.NEEDS_REVIEW:
        return Advice(Action.KEEP, "a person decides about the refund: `python -m ops explain`")
    return Advice(Action.DISCARD, f"the refund is {refund.status}: nothing to do")


def advise_outcome(of: StoredOrder | StoredRefund | None) -> Advice:
    """A message with the outcome of a payment or a refund."""
    if of is None:
        return Advice(Action.KEEP, "the order service has no such order or refund: was its table restored?")
    return Advice(Action.REDRIVE, f"it is {of.status}, takes it once, and ignores it if it knows better")
