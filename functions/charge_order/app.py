"""charge_order: charges orders, fed by the payments queue. This file only puts the parts together.

SQS message ─► Consumer ─┬─► order_placed.py ─► claim ─► charge ─► finalize
               (runtime) └─► cancel_requested.py
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import boto3

from charge_order.cancel_requested import cancel_order
from charge_order.order_placed import charge_order
from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent, event_adapter
from onecharge.payments.instruments import Instruments
from onecharge.payments.service import PaymentService
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.tools import Tools
from onecharge.runtime.aws import client_config
from onecharge.runtime.consumer import Consumer, Disposition
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.queues import Queue

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext

ORDER_EVENT = event_adapter(OrderPlacedEvent, CancelRequestedEvent)
"""Every event on the payments queue."""


def handle(event: OrderPlacedEvent | CancelRequestedEvent, tools: Tools) -> Disposition:
    """Handle one delivery. Raises PoisonMessage."""
    return charge_order(event, tools) if isinstance(event, OrderPlacedEvent) else cancel_order(event, tools)


class Application:
    """Everything that outlives an invocation: clients with their connections, threads, derived time bounds."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        logger = function_logger()
        self.counts = Counts()
        instruments = Instruments(time.time, logger, self.counts)
        bounds = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        service = PaymentService(environment, bounds=bounds, instruments=instruments)
        sqs = boto3.client("sqs", config=client_config())
        self.consumer = Consumer(
            model=ORDER_EVENT,
            # A Stripe key that cannot be read is an outage: each message backs off.
            handle=lambda event: handle(event, service.tools()),
            queue=Queue(sqs, environment["PAYMENTS_QUEUE_URL"], environment["PAYMENTS_DLQ_URL"]),
            logger=logger,
            count=self.counts,
            record_seconds=bounds.record_seconds,
        )


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse":
    """Charge the orders of one batch; returns the messages that SQS is to deliver again."""
    return application.consumer.consume(event, context)
