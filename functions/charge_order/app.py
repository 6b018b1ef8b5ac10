"""charge_order: charges orders, fed by the payments queue. This file only puts the parts together.

SQS message ─► Consumer ─► ChargeOrder ─► PaymentStore: claim ─► PaymentWorker ─► Turn ────────► Stripe ─► finalize
               (runtime)   charge.py      payments/charges/store.py  …/worker.py  stripe_limit.py

Messages that were received before: RowsOfRedelivered (redelivered.py) reads their rows first, all at once.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Metrics

from charge_order.cancel import CancelOrder
from charge_order.charge import ChargeOrder
from charge_order.redelivered import RowsOfRedelivered
from onecharge.contract.events import CancelRequestedEvent, Event, OrderPlacedEvent, event_adapter
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.payments.service import Charges, PaymentService
from onecharge.payments.stripe_limit import SharedRate
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.aws import aws_client, impatient_config
from onecharge.runtime.consumer import Batch, Disposition, Handle, queue_consumer
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext

HANDLERS: Mapping[type[Event], Callable[[Charges], Callable[[Any], Disposition]]] = {
    OrderPlacedEvent: ChargeOrder,
    CancelRequestedEvent: CancelOrder,
}
ORDER_EVENT = event_adapter(*HANDLERS)
"""Every event on the payments queue."""
REQUESTS_OF_AN_ORDER = 2
"""To Stripe: create and confirm, which are different endpoints."""


def handle(event: Event, charges: Charges) -> Disposition:
    """Handle one delivery. Raises PoisonMessage."""
    return HANDLERS[type(event)](charges)(event)


class Application:
    """Everything that outlives an invocation: clients with their connections, threads, derived time bounds."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        logger = function_logger()
        self.counts = Counts(Metrics())
        instruments = Instruments(time.time, logger, self.counts)
        bounds = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        self._service = PaymentService(environment, bounds=bounds, instruments=instruments)
        # For what only saves work, and delays no order by much.
        impatient = aws_client("dynamodb", config=impatient_config())
        self._rate = SharedRate.of(
            environment, "charge_order", requests=REQUESTS_OF_AN_ORDER, client=impatient, instruments=instruments
        )
        self._rows_of_redelivered = RowsOfRedelivered(
            PaymentStore(impatient, environment["PAYMENTS_TABLE"]), instruments, thread=ThreadPoolExecutor(1)
        )
        self.consumer = queue_consumer(
            model=ORDER_EVENT,
            handler=self._handler,
            queue_url=environment["PAYMENTS_QUEUE_URL"],
            dlq_url=environment["PAYMENTS_DLQ_URL"],
            logger=logger,
            count=self.counts,
            record_seconds=bounds.record_seconds,
        )

    def _handler(self, batch: Batch[Event]) -> Handle[Event]:
        """What handles the events of one batch."""
        turns = self._rate.turns(batch.at_once, seconds_left=batch.seconds_left, bounds=self._service.bounds)
        seen = self._rows_of_redelivered(batch)

        def handle_one(event: Event) -> Disposition:
            with turns.turn() as turn:
                # With the Stripe key as it is now. A key that cannot be read is an outage: each message backs off.
                return handle(event, replace(self._service.charges(), turn=turn, seen=seen))

        return handle_one


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse":
    """Charge the orders of one batch; returns the messages that SQS is to deliver again."""
    return application.consumer.consume(event, context)
