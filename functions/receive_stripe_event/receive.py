"""One event that Stripe has sent: settled as Stripe shows it, or reported. Nothing is ever charged here.

    told before ────────────────────────► nothing
    a PaymentIntent of ours ────────────► the layer's Settler, as the reconciler does it  ──┐
    a refund or dispute of our charge ──► a metric, a line in the log ──────────────────────┴─► keep the event's id
    anything else ──────────────────────► nothing

An event whose row is held by a worker changes nothing and counts as handled. Nothing is lost by that: the worker's
message is not acknowledged before the row is settled, so that a crash brings it back; what a customer decides comes
after the row says REQUIRES_ACTION, which has no lease; and the reconciler reads the same event minutes later.
"""

from collections.abc import Callable
from dataclasses import dataclass

import stripe
from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.payments.settling import Settler
from onecharge.payments.stripe_gateway import Aftermath, LookInconclusive, StripeGateway, Told, ToldOfCharge, told_by
from receive_stripe_event.handled_events import HandledEvents

OUTAGES = (stripe.StripeError, BotoCoreError, ClientError, LookInconclusive)
"""What stops an event halfway: Stripe is to send it again."""


@dataclass(frozen=True)
class ReceiveStripeEvent:
    """Handles events, in any order and however often; `clock` gives the time in epoch seconds."""

    gateway: StripeGateway
    settler: Settler
    handled: HandledEvents
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, event: stripe.Event) -> None:
        """Handle one event whose signature has been verified.

        Raises:
            OUTAGES: it is not handled, and has to be sent again.
        """
        told = told_by(event)
        if told is None:
            self.count("EventIgnored")
        elif self.handled.has(told.event_id):
            self.count("EventRepeated")
        else:
            self._handle(told)
            # Not before: an event that was known, but not handled, would be lost when Stripe sends it again.
            self.handled.keep(told.event_id, now=int(self.clock()))

    def _handle(self, told: Told | ToldOfCharge) -> None:
        match told:
            case Told():
                self.settler.told(told)
                self.count("EventHandled")
                about = {"event_id": told.event_id, "payment_intent_id": told.intent.payment_intent_id}
                self.logger.info("event handled", extra={"order_id": told.order_id, "attempt": told.attempt, **about})
            case ToldOfCharge():
                self._report(told)

    def _report(self, told: ToldOfCharge) -> None:
        """Money that goes back, or may have to: no state changes for it yet."""
        whose = told.whose or (self.gateway.whose(told.payment_intent_id) if told.payment_intent_id else None)
        if whose is None:
            self.count("EventIgnored")
            return
        order_id, attempt = whose
        about = {"order_id": order_id, "attempt": attempt, "event_id": told.event_id}
        match told.what:
            case Aftermath.REFUNDED:
                self.count("ChargeRefunded")
                self.logger.info("charge refunded", extra={**about, "payment_intent_id": told.payment_intent_id})
            case Aftermath.DISPUTED:
                self.count("ChargeDisputed")
                self.count("Alarm")
                self.logger.error("charge disputed", extra={**about, "payment_intent_id": told.payment_intent_id})
