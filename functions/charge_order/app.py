"""charge_order: charges orders, fed by the payments queue. This file only puts the parts together.

SQS message ─► Consumer ─► ChargeOrder ─► PaymentStore: claim ─► PaymentWorker ─► Stripe ─► PaymentStore: finalize
               (runtime)   charge.py      payments/charges/store.py  …/worker.py
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from aws_lambda_powertools import Logger, Metrics
from pydantic import Field, TypeAdapter

from charge_order.charge import ChargeOrder
from onecharge.contract.cancellations import CancelRequestedEvent
from onecharge.contract.events import OrderPlacedEvent
from onecharge.payments.instruments import Instruments
from onecharge.payments.service import PaymentService
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.consumer import queue_consumer
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.metrics import Counts

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext

ORDER_EVENT: TypeAdapter[OrderPlacedEvent | CancelRequestedEvent] = TypeAdapter(
    Annotated[OrderPlacedEvent | CancelRequestedEvent, Field(discriminator="type")]
)
"""Every event on the payments queue."""


class Application:
    """Everything that outlives an invocation: clients with their connections, threads, derived time bounds."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        logger = Logger()
        self.counts = Counts(Metrics())
        bounds = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        self._service = PaymentService(
            environment, bounds=bounds, instruments=Instruments(time.time, logger, self.counts)
        )
        self.consumer = queue_consumer(
            model=ORDER_EVENT,
            # With the Stripe key as it is now. A key that cannot be read is an outage: each message backs off.
            handle=lambda event: self._charge_order()(event),
            queue_url=environment["PAYMENTS_QUEUE_URL"],
            dlq_url=environment["PAYMENTS_DLQ_URL"],
            logger=logger,
            count=self.counts,
            record_seconds=bounds.record_seconds,
        )

    def _charge_order(self) -> ChargeOrder:
        charges = self._service.charges()
        return ChargeOrder(worker=charges.worker, bounds=charges.bounds, instruments=charges.instruments)


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse":
    """Charge the orders of one batch; returns the messages that SQS is to deliver again."""
    return application.consumer.consume(event, context)
