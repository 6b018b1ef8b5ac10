"""stripe_eventbridge: reconciles payments when Stripe sends an event to EventBridge. It only puts the parts together.

Stripe ─► partner event bus ─► rule ─► SQS ─► Consumer ─► partner_event.py ─► payments/receive_event.py
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Metrics

from onecharge.payments.event_handler import OUTAGES, cause_of
from onecharge.payments.instruments import Instruments
from onecharge.payments.processed_events import ProcessedEvents
from onecharge.payments.receive_event import ReceiveStripeEvent
from onecharge.payments.reconciliation import Reconciliation
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.consumer import BackOff, Disposition, Done, one_by_one, queue_consumer
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from stripe_eventbridge.partner_event import PartnerEvent

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        logger = function_logger()
        self.counts = Counts(Metrics())
        self._instruments = Instruments(time.time, logger, self.counts)
        bounds = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        reconciliation = Reconciliation(environment, bounds=bounds, instruments=self._instruments)
        processed = ProcessedEvents(reconciliation.service.dynamodb, environment["STRIPE_EVENTS_TABLE"])
        self._receive = partial(ReceiveStripeEvent.of, reconciliation, processed)
        self._source = environment["STRIPE_EVENT_SOURCE_NAME"]
        self.consumer = queue_consumer(
            model=PartnerEvent,
            handler=one_by_one(self.handle),
            queue_url=environment["STRIPE_EVENTS_QUEUE_URL"],
            dlq_url=environment["STRIPE_EVENTS_DLQ_URL"],
            logger=logger,
            count=self.counts,
            record_seconds=bounds.record_seconds,
        )

    def handle(self, partner_event: PartnerEvent) -> Disposition:
        """Handle one delivery. Raises PoisonMessage."""
        event = partner_event.event_from(self._source)
        if event is None:
            self.counts("EventIgnored")
            return Done()
        try:
            self._receive()(event)
        except OUTAGES as error:
            self.counts("WebhookDeferred")
            self._instruments.log(
                "event deferred: it stays in the queue",
                alarm=cause_of(error),
                **partner_event.log_fields,
                error=type(error).__name__,
            )
            return BackOff()
        return Done()


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse":
    """Handle the events of one batch; returns the messages that SQS is to deliver again."""
    return application.consumer.consume(event, context)
