"""Events of a charge after it was made: its refunds and its dispute are recorded on the payment's row.

An event is only a hint, since events may be late, duplicated or out of order. So the refunded amount is read from
Stripe: it may also fall, when a refund fails. And it is read once more after each write, because another handler may
have read a newer amount meanwhile, and found nothing to write.
"""

from dataclasses import dataclass

from onecharge.payments.charges.gateway import NoSuchPaymentIntent, StripeGateway
from onecharge.payments.charges.protocol import Payment
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.payments.stripe_events import ChargeEvent, ChargeEventType, EventDeferred, RefundEvent
from onecharge.runtime.alarms import Cause
from onecharge.runtime.metrics import Alarm

_TRIES = 4


@dataclass(frozen=True)
class ChargeEventHandler:
    """Records through a store; retrieves from Stripe what the event does not say."""

    store: PaymentStore
    gateway: StripeGateway
    instruments: Instruments

    def handle(self, event: ChargeEvent | RefundEvent) -> None:
        """Record one event. Idempotent, and independent of the order of events.

        Raises:
            EventDeferred: the row kept changing, or Stripe does not show the PaymentIntent that the event names.
            LookupInconclusive, stripe.StripeError: Stripe did not answer, or refused.
            BotoCoreError, ClientError: DynamoDB did not answer.
        """
        order_id = self._order_of(event)
        if order_id is None:
            self.instruments.count("ChargeEventIgnored")
        elif isinstance(event, RefundEvent) or event.type is ChargeEventType.REFUNDED:
            self._record_refunded(event, order_id)
        else:
            self._record_dispute(event, order_id)

    def _order_of(self, event: ChargeEvent | RefundEvent) -> str | None:
        if event.order_id is not None or event.payment_intent_id is None:
            return event.order_id
        # A dispute names no order, nor does a refund that was made by hand; the PaymentIntent does.
        try:
            return self.gateway.order_of(event.payment_intent_id)
        except NoSuchPaymentIntent:
            # The API key may be another account's for a while.
            self.instruments.count("EventUnknownToStripe")
            self.instruments.count(Alarm(Cause.STRIPE_ACCOUNT))
            raise EventDeferred("Stripe has no such PaymentIntent") from None

    def _record_refunded(self, event: ChargeEvent | RefundEvent, order_id: str) -> None:
        for _ in range(_TRIES):
            # Read the row first: what Stripe shows is then newer than the revision that it is written on.
            payment = self._row_of(event, order_id)
            if payment is None:
                return
            amount_refunded_minor = self.gateway.amount_refunded(str(payment.payment_intent_id))
            if amount_refunded_minor == payment.amount_refunded_minor:
                return
            if self.store.record_refunded(payment, amount_refunded_minor):
                self.instruments.count("ChargeRefunded")
        raise EventDeferred("the row kept changing")

    def _record_dispute(self, event: ChargeEvent, order_id: str) -> None:
        if event.dispute_status is not None and self._row_of(event, order_id) is not None:
            self.store.record_dispute(order_id, event.dispute_status)
        if event.type is ChargeEventType.DISPUTE_CREATED:
            # Last, so that an event that fails and is delivered again raises one alarm.
            self.instruments.count("ChargeDisputed")
            self.instruments.log(
                "charge disputed: respond at Stripe", alarm=Cause.CHARGE_DISPUTED, **_log_fields(event, order_id)
            )

    def _row_of(self, event: ChargeEvent | RefundEvent, order_id: str) -> Payment | None:
        """The order's row, if its PaymentIntent is the event's."""
        payment = self.store.read(order_id)
        if payment is not None and payment.payment_intent_id == event.payment_intent_id:
            return payment
        # The order shows the refunds and the dispute of its own PaymentIntent only.
        self.instruments.count("ChargeEventOfAnotherPaymentIntent")
        self.instruments.logger.warning(
            "event ignored: the payment's row names another PaymentIntent", extra=_log_fields(event, order_id)
        )
        return None


def _log_fields(event: ChargeEvent | RefundEvent, order_id: str) -> dict[str, object]:
    return {
        "order_id": order_id,
        "event_id": event.event_id,
        "event_type": event.type,
        "payment_intent_id": event.payment_intent_id,
        "dispute_status": event.dispute_status if isinstance(event, ChargeEvent) else None,
    }
