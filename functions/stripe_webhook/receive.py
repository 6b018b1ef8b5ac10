"""One event that Stripe has sent: handled as the scheduled run handles it, once. Nothing is ever charged here.

processed before ──────────────► nothing
anything that concerns us ─────► the layer's StripeEventHandler, as in a scheduled run ─► record the event's id
anything else ─────────────────► nothing

An event whose row is held by a worker changes nothing and counts as processed. Nothing is lost by that: the worker's
message is not acknowledged before the row is finalized, so that a crash brings it back; and the scheduled run reads the
same event minutes later.
"""

from collections.abc import Callable
from dataclasses import dataclass

import stripe
from aws_lambda_powertools import Logger

from onecharge.payments.charges.gateway import parse_event
from onecharge.payments.processed_events import ProcessedEvents
from onecharge.payments.stripe_events import StripeEventHandler


@dataclass(frozen=True)
class ReceiveStripeEvent:
    """Handles events, in any order and however often; `clock` gives the time in epoch seconds."""

    events: StripeEventHandler
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
            self.events.handle(parsed)
            # Not before: an event that was recorded, but not handled, would be lost when Stripe sends it again.
            self.processed.record(parsed.event_id, now=int(self.clock()))
            self.count("EventProcessed")
            about = {
                "event_id": parsed.event_id,
                "order_id": parsed.order_id,
                "payment_intent_id": parsed.payment_intent_id,
            }
            self.logger.info("event processed", extra=about)
