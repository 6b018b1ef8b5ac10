"""One event that Stripe has sent: handled once, by the same rules as in a scheduled run. Nothing is ever charged here.

not about us ──────────► ignored
of the other mode ─────► deferred, with an alarm
processed before ──────► ignored
else ──────────────────► StripeEventHandler ─► record the event's id

An event whose row is held by a worker changes nothing, and counts as processed. Nothing is lost: the worker's message
is not acknowledged before the row is finalized, so after a crash it is delivered again; and the scheduled run reads the
same event minutes later.
"""

from dataclasses import dataclass
from typing import Self

import stripe

from onecharge.payments.event_handler import StripeEventHandler
from onecharge.payments.instruments import Instruments
from onecharge.payments.processed_events import ProcessedEvents
from onecharge.payments.reconciliation import Reconciliation
from onecharge.payments.stripe_events import EventDeferred, parse_event
from onecharge.runtime.alarms import Cause


@dataclass(frozen=True)
class ReceiveStripeEvent:
    """Handles events. Idempotent, and independent of their order."""

    events: StripeEventHandler
    processed: ProcessedEvents
    instruments: Instruments
    is_live: bool
    """Whether our API key is one of live mode."""

    @classmethod
    def of(cls, reconciliation: Reconciliation, processed: ProcessedEvents) -> Self:
        """With the Stripe key as it is now. Raises SecretUnavailable."""
        service = reconciliation.service
        return cls(
            events=reconciliation.event_handler(service.charge_tools()),
            processed=processed,
            instruments=service.instruments,
            is_live=service.stripe.is_live(),
        )

    def __call__(self, event: stripe.Event) -> None:
        """Handle one event that was proved to be Stripe's.

        Raises:
            OUTAGES: the event is not processed, and has to be sent again.
        """
        parsed = parse_event(event)
        if parsed is None:
            self.instruments.count("EventIgnored")
            return
        self._require_our_mode(event)
        if self.processed.contains(parsed.event_id):
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

    def _require_our_mode(self, event: stripe.Event) -> None:
        """Raises EventDeferred if the event is live and our key is not, or the other way round.

        The endpoint, or the key, is of another environment: with this key nothing of the event can be read. It is not
        dropped, since the key may be the wrong one.
        """
        if getattr(event, "livemode", self.is_live) != self.is_live:
            self.instruments.count("EventOfOtherMode")
            self.instruments.log(
                "event of the other mode: live, or of a sandbox", alarm=Cause.STRIPE_ACCOUNT, event_id=event.id
            )
            raise EventDeferred("event of the other mode")
