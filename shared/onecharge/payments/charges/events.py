"""A charge after it was made: money that went back, or may have to, by us or by hand, shows on the payment's row.

An event is a hint. How much is refunded Stripe is asked: it may have become less, when a refund failed, and of two
events nobody knows which is the newer. Whoever writes the row asks once more: another handler may have asked later, and
found nothing to write before.
"""

from collections.abc import Callable
from dataclasses import dataclass

from aws_lambda_powertools import Logger

from onecharge.payments.charges.gateway import (
    ChargeEvent,
    ChargeEventType,
    NoSuchPaymentIntent,
    RefundEvent,
    StripeGateway,
)
from onecharge.payments.charges.protocol import Payment
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.refunds.gateway import StripeRefunds

_TRIES = 4


class ChargeEventDeferred(Exception):
    """The row, or what Stripe shows, kept changing: the event is to be handled again."""


@dataclass(frozen=True)
class ChargeEventRecorder:
    """Records through a store; Stripe says whose charge it is where the event does not."""

    store: PaymentStore
    gateway: StripeGateway
    refunds: StripeRefunds
    logger: Logger
    count: Callable[[str], None]

    def record(self, event: ChargeEvent | RefundEvent) -> None:
        """Record what follows from one event; late, duplicate and disordered ones change nothing.

        Raises:
            ChargeEventDeferred: the row kept changing.
            LookupInconclusive, stripe.StripeError: Stripe gave no answer.
            BotoCoreError, ClientError: DynamoDB gave none.
        """
        order_id = self._order_of(event)
        if order_id is None:
            self.count("ChargeEventIgnored")
        elif isinstance(event, RefundEvent) or event.type is ChargeEventType.REFUNDED:
            self._record_refunded(event, order_id)
        else:
            self._record_dispute(event, order_id)

    def _order_of(self, event: ChargeEvent | RefundEvent) -> str | None:
        if event.order_id is not None or event.payment_intent_id is None:
            return event.order_id
        # A dispute names no order, and neither does a refund that was made by hand; the PaymentIntent does.
        try:
            return self.gateway.order_of(event.payment_intent_id)
        except NoSuchPaymentIntent:
            # The secret may be another account's for a while.
            self.count("EventUnknownToStripe")
            self.count("Alarm")
            raise ChargeEventDeferred("Stripe has no such PaymentIntent") from None

    def _record_refunded(self, event: ChargeEvent | RefundEvent, order_id: str) -> None:
        for _ in range(_TRIES):
            # The row first: what Stripe shows is then newer than the revision that it is written on.
            payment = self._row_of(event, order_id)
            if payment is None:
                return
            amount_refunded_minor = self.refunds.amount_refunded(str(payment.payment_intent_id))
            if amount_refunded_minor == payment.amount_refunded_minor:
                return
            if self.store.record_refunded(payment, amount_refunded_minor):
                self.count("ChargeRefunded")
        raise ChargeEventDeferred(order_id)

    def _record_dispute(self, event: ChargeEvent, order_id: str) -> None:
        if event.dispute_status is not None and self._row_of(event, order_id) is not None:
            self.store.record_dispute(order_id, event.dispute_status)
        if event.type is ChargeEventType.DISPUTE_CREATED:
            # Last, so that an event that is handled again because it failed is one alarm.
            self.count("ChargeDisputed")
            self.count("Alarm")
            self.logger.error("charge disputed: answer it at Stripe", extra=_about(event, order_id))

    def _row_of(self, event: ChargeEvent | RefundEvent, order_id: str) -> Payment | None:
        """The order's row, if it names the PaymentIntent."""
        payment = self.store.read(order_id)
        if payment is not None and payment.payment_intent_id == event.payment_intent_id:
            return payment
        # The figures of another PaymentIntent, as one that was charged beside it, are not the order's.
        self.count("ChargeEventOfAnotherPaymentIntent")
        self.logger.warning("the payment's row names another PaymentIntent", extra=_about(event, order_id))
        return None


def _about(event: ChargeEvent | RefundEvent, order_id: str) -> dict[str, object]:
    return {
        "order_id": order_id,
        "event_id": event.event_id,
        "event_type": event.type,
        "payment_intent_id": event.payment_intent_id,
        "dispute_status": event.dispute_status if isinstance(event, ChargeEvent) else None,
    }
