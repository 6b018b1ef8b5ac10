"""Reads the state of a message's order: the order, its payment, its refund, and Stripe if only Stripe knows.

It only reads. Stripe is asked through the payment service's own gateway: retrieve, and the lookup of every
PaymentIntent of an order.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import stripe
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError

from onecharge.contract.events import CancelRequestedEvent, Event, OrderPlacedEvent, PaymentOutcomeEvent, reason_of
from onecharge.contract.refunds import RefundOutcomeEvent, RefundRequestedEvent
from onecharge.contract.states import OrderStatus
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStore
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.protocol import FoundIntent, FrozenRequest, Payment
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.stripe_responses import LookupInconclusive
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.runtime.dynamodb import to_item
from ops.connection import Stack
from ops.dead_letters.advice import (
    Advice,
    advise_cancel_requested,
    advise_order_placed,
    advise_payment_outcome,
    advise_unknown,
    advise_unreadable,
    asks_stripe,
    keep,
)
from ops.dead_letters.letter import DeadLetter
from ops.dead_letters.queues import destination_of
from ops.dead_letters.refund_advice import advise_refund_outcome, advise_refund_requested


@dataclass(frozen=True)
class Consultation:
    """The stores of one stack and its Stripe account. Safe to use on several threads."""

    stack: Stack
    clock: Callable[[], float] = time.time

    def advise(self, letter: DeadLetter) -> Advice:
        """What to do with the message, by what is known at this moment; keep it if that cannot be found out."""
        try:
            return self._advise_letter(letter)
        except (BotoCoreError, ClientError) as error:
            return keep(f"it could not be consulted: {error}")
        except ValueError:  # Of an item that breaks its schema; the item's values stay out of it.
            return keep("the item of its order or refund cannot be read: `python -m ops explain`")

    def _advise_letter(self, letter: DeadLetter) -> Advice:
        destination = destination_of(letter)
        if destination is None and letter.event_type is None and letter.order_id is None:
            return advise_unknown()
        if destination is None:
            return keep(f"no queue takes messages of the type {letter.event_type}")
        try:
            event = destination.adapter.validate_json(letter.event_json)
        except ValidationError as invalid:
            return advise_unreadable(reason_of(invalid), self._order(letter.order_id))
        if self._is_in_future(event):
            return advise_unreadable("its time is in the future", self._order(letter.order_id))
        return self._advise(event)

    def _advise(self, event: Event) -> Advice:
        order = self._order(event.data.order_id)
        match event:
            case OrderPlacedEvent():
                payment = self._payments.read(event.data.order_id)
                asks = asks_stripe(event, order, payment)
                return advise_order_placed(event, order, payment, self._at_stripe(event, payment) if asks else [])
            case CancelRequestedEvent():
                return advise_cancel_requested(event, order)
            case PaymentOutcomeEvent():
                return advise_payment_outcome(event, order, self._payments.read(event.data.order_id))
            case RefundRequestedEvent():
                refund = RefundStore(self.stack.dynamodb, self.stack.resource("RefundsTable")).read(
                    event.data.order_id, event.data.refund_id
                )
                payment = self._payments.read(event.data.order_id)
                return advise_refund_requested(event, self._stored_refund(event), refund, payment)
            case RefundOutcomeEvent():
                canceled = order is not None and order.status is OrderStatus.CANCELED
                return advise_refund_outcome(event, self._stored_refund(event), order_is_canceled=canceled)
            case _:
                return keep(f"there is no rule for messages of the type {event.type}")

    def _at_stripe(self, event: OrderPlacedEvent, payment: Payment | None) -> Sequence[FoundIntent] | None:
        """The PaymentIntent that the row names, or all of the order if there is no such row; None: unknown."""
        gateway = StripeGateway(self.stack.stripe)
        if payment is not None and payment.payment_intent_id is not None:
            response = gateway.retrieve(payment.payment_intent_id)
            return None if response.failure or response.intent is None else [response.intent]
        try:
            return gateway.find_payment_intents(FrozenRequest.of(event.data), now=int(self.clock()))
        except (LookupInconclusive, stripe.StripeError):
            return None

    def _order(self, order_id: str | None) -> StoredOrder | None:
        if order_id is None:
            return None
        return OrderStore(self.stack.dynamodb, self.stack.resource("OrdersTable")).find(order_id)

    def _stored_refund(self, event: RefundRequestedEvent | RefundOutcomeEvent) -> StoredRefund | None:
        answer = self.stack.dynamodb.get_item(
            TableName=self.stack.resource("OrderRefundsTable"),
            Key=to_item({"order_id": event.data.order_id, "refund_id": event.data.refund_id}),
            ConsistentRead=True,
        )
        return StoredRefund.from_item(answer["Item"]) if "Item" in answer else None

    @property
    def _payments(self) -> PaymentStore:
        return PaymentStore(self.stack.dynamodb, self.stack.resource("PaymentsTable"))

    def _is_in_future(self, event: Any) -> bool:
        """Whether the payment service refuses it as poison (payments/work.py, require_past)."""
        at: datetime | None = getattr(event.data, "placed_at", None) or getattr(event.data, "requested_at", None)
        return at is not None and at.timestamp() > self.clock() + FUTURE_MAX_SECONDS
