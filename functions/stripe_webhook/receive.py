"""One event that Stripe has sent: handled once, by the same rules as in a scheduled run. Nothing is ever charged here.

not about us ──────────► ignored
processed before ──────► ignored
else ──────────────────► StripeEventHandler ─► record the event's id

An event whose row is held by a worker changes nothing, and counts as processed. Nothing is lost: the worker's message
is not acknowledged before the row is finalized, so after a crash it is delivered again; and the scheduled run reads the
same event minutes later.
"""

from dataclasses import dataclass

import stripe

from onecharge.payments.event_handler import StripeEventHandler
from onecharge.payments.instruments import Instruments
from onecharge.payments.processed_events import ProcessedEvents
from onecharge.payments.stripe_events import parse_event


@dataclass(frozen=True)
class ReceiveStripeEvent:
    """Handles events. Idempotent, and independent of their order."""

    events: StripeEventHandler
    processed: ProcessedEvents
    instruments: Instruments

    def __call__(self, event: stripe.Event) -> None:
        """Handle one event whose signature has been verified.

        Raises:
            OUTAGES: the event is not processed, and has to be sent again.
        """
        parsed = parse_event(event)
        if parsed is None:
            self.instruments.count("EventIgnored")
        elif self.processed.contains(parsed.event_id):
            self.instruments.count("EventReplayed")
        else:
            self.events.handle(parsed)
            # Last: an event that is recorded but not handled would be ignored when Stripe sends it again.
            self.processed.record(parsed.event_id, now=self.instruments.now())
            self.instruments.count("EventProcessed")
            self.instruments.log(
                "event processed",
                event_id=parsed.event_id,
                order_id=parsed.order_id,
                payment_intent_id=parsed.payment_intent_id,
            )
