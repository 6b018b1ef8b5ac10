"""One event that Stripe has sent: reconciled with the payment's row, or recorded on it. Nothing is ever charged here.

processed before ───────────────────► nothing
a PaymentIntent of ours ────────────► the layer's Reconciler, as in a scheduled run ──┐
a refund or dispute of our charge ──► the figures on the payment's row ───────────────┤
a refund of ours that changed ──────► the handler of refunds ─────────────────────────┴─► record the event's id
anything else, or a thin event ─────► nothing

An event whose row is held by a worker changes nothing and counts as processed. Nothing is lost by that: the worker's
message is not acknowledged before the row is finalized, so that a crash brings it back; and the scheduled run reads the
same event minutes later.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import stripe
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.payments.reconciler import Reconciler, RowChanged, StripeUnavailable
from onecharge.payments.store import PaymentStore
from onecharge.payments.stripe_gateway import (
    ChargeEvent,
    ChargeEventType,
    LookupInconclusive,
    PaymentIntentEvent,
    RefundEvent,
    StripeGateway,
    parse_event,
)
from receive_stripe_event.processed_events import ProcessedEvents

OUTAGES = (
    StripeUnavailable,
    RowChanged,
    LookupInconclusive,
    stripe.StripeError,
    BotoCoreError,
    ClientError,
    GetParameterError,
)
"""What stops an event halfway: Stripe has to send it again."""


@dataclass(frozen=True)
class ReceiveStripeEvent:
    """Handles events, in any order and however often; `clock` gives the time in epoch seconds."""

    store: PaymentStore
    gateway: StripeGateway
    reconciler: Reconciler
    handle_refund: Callable[[RefundEvent], None]
    processed: ProcessedEvents
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, event: stripe.Event) -> None:
        """Handle one event whose signature has been verified.

        Raises:
            OUTAGES: it is not processed, and has to be sent again.
        """
        parsed = parse_event(event)
        if parsed is None:
            self.count("EventIgnored")
        elif self.processed.contains(parsed.event_id):
            self.count("EventReplayed")
        else:
            self._handle(parsed)
            # Not before: an event that was recorded, but not handled, would be lost when Stripe sends it again.
            self.processed.record(parsed.event_id, now=int(self.clock()))

    def _handle(self, event: PaymentIntentEvent | ChargeEvent | RefundEvent) -> None:
        match event:
            case PaymentIntentEvent():
                self._reconcile(event)
                self._processed(event, event.order_id, event.intent.payment_intent_id)
            case ChargeEvent():
                self._record(event)
            case RefundEvent():
                self.handle_refund(event)
                self._processed(event, event.order_id, event.payment_intent_id)
            case _:
                assert_never(event)

    def _reconcile(self, event: PaymentIntentEvent) -> None:
        try:
            self.reconciler.handle_event(event)
        except RowChanged:
            # Usually by the worker of the same charge, which is done with it now.
            self.reconciler.handle_event(event)

    # ------------------------------------------------------------ refunds and disputes, by us or by hand

    def _record(self, event: ChargeEvent) -> None:
        order_id = event.order_id
        if order_id is None and event.payment_intent_id is not None:
            # A dispute names no order; its PaymentIntent does.
            order_id = self.gateway.order_of(event.payment_intent_id)
        if order_id is None:
            self.count("EventIgnored")
            return
        if event.type is ChargeEventType.DISPUTE_CREATED:
            self.count("ChargeDisputed")
            self.count("Alarm")
            self.logger.error("charge disputed: answer it at Stripe", extra=_about(event, order_id))
        payment = self.store.read(order_id)
        if payment is None or payment.payment_intent_id != event.payment_intent_id:
            # The figures of another PaymentIntent, as one that was charged beside it, are not the order's.
            self.count("ChargeEventOfAnotherPaymentIntent")
            self.logger.warning("the payment's row names another PaymentIntent", extra=_about(event, order_id))
            return
        if event.type is ChargeEventType.REFUNDED:
            self.store.record_refunded(order_id, event.amount_refunded_minor or 0)
            self.count("ChargeRefunded")
        elif event.dispute_status is not None:
            self.store.record_dispute(order_id, event.dispute_status)
        self._processed(event, order_id, event.payment_intent_id)

    def _processed(
        self, event: PaymentIntentEvent | ChargeEvent | RefundEvent, order_id: str | None, intent_id: str | None
    ) -> None:
        self.count("EventProcessed")
        about = {"event_id": event.event_id, "order_id": order_id, "payment_intent_id": intent_id}
        self.logger.info("event processed", extra=about)


def _about(event: ChargeEvent, order_id: str) -> dict[str, object]:
    return {
        "order_id": order_id,
        "event_id": event.event_id,
        "event_type": event.type,
        "payment_intent_id": event.payment_intent_id,
        "dispute_status": event.dispute_status,
    }
