"""A charge after it was made: money that went back, or may have to, by us or by hand, shows on the payment's row."""

from collections.abc import Callable
from dataclasses import dataclass

from aws_lambda_powertools import Logger

from onecharge.payments.store import PaymentStore
from onecharge.payments.stripe_gateway import ChargeEvent, ChargeEventType, StripeGateway


@dataclass(frozen=True)
class ChargeEventRecorder:
    """Records through a store; Stripe says whose charge it is where the event does not."""

    store: PaymentStore
    gateway: StripeGateway
    logger: Logger
    count: Callable[[str], None]

    def record(self, event: ChargeEvent) -> None:
        """Record one event; late, duplicate and disordered ones change nothing.

        Raises:
            stripe.StripeError: Stripe gave no answer.
            BotoCoreError, ClientError: DynamoDB gave none.
        """
        order_id = self._order_of(event)
        if order_id is None:
            self.count("ChargeEventIgnored")
            return
        payment = self.store.read(order_id)
        if payment is None or payment.payment_intent_id != event.payment_intent_id:
            # The figures of another PaymentIntent, as one that was charged beside it, are not the order's.
            self.count("ChargeEventOfAnotherPaymentIntent")
            self.logger.warning("the payment's row names another PaymentIntent", extra=_about(event, order_id))
        elif event.type is ChargeEventType.REFUNDED:
            self.store.record_refunded(order_id, event.amount_refunded_minor or 0)
            self.count("ChargeRefunded")
        elif event.dispute_status is not None:
            self.store.record_dispute(order_id, event.dispute_status)
        if event.type is ChargeEventType.DISPUTE_CREATED:
            # Last, so that an event that is handled again because it failed is one alarm.
            self.count("ChargeDisputed")
            self.count("Alarm")
            self.logger.error("charge disputed: answer it at Stripe", extra=_about(event, order_id))

    def _order_of(self, event: ChargeEvent) -> str | None:
        if event.order_id is not None or event.payment_intent_id is None:
            return event.order_id
        # A dispute names no order; its PaymentIntent does.
        return self.gateway.order_of(event.payment_intent_id)


def _about(event: ChargeEvent, order_id: str) -> dict[str, object]:
    return {
        "order_id": order_id,
        "event_id": event.event_id,
        "event_type": event.type,
        "payment_intent_id": event.payment_intent_id,
        "dispute_status": event.dispute_status,
    }
