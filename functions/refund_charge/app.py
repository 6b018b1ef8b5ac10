"""refund_charge: makes refunds, fed by the refunds queue. This file only puts the parts together.

SQS message ─► Consumer ─► refund_charge (refund.py) ─► claim ─► refund ─► finalize
               (runtime)
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import boto3

from onecharge.contract.refunds import RefundRequestedEvent
from onecharge.payments.instruments import Instruments
from onecharge.payments.service import PaymentService
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.aws import client_config
from onecharge.runtime.consumer import Consumer
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.queues import Queue
from refund_charge.refund import refund_charge

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext


class Application:
    """Everything that outlives an invocation: clients with their connections, threads, derived time bounds."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        logger = function_logger()
        self.counts = Counts()
        bounds = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        instruments = Instruments(time.time, logger, self.counts)
        service = PaymentService(environment, bounds=bounds, instruments=instruments)
        sqs = boto3.client("sqs", config=client_config())
        self.consumer = Consumer(
            model=RefundRequestedEvent,
            # A Stripe key that cannot be read is an outage: each message backs off.
            handle=lambda event: refund_charge(event, service.tools()),
            queue=Queue(sqs, environment["REFUNDS_QUEUE_URL"], environment["REFUNDS_DLQ_URL"]),
            logger=logger,
            count=self.counts,
            record_seconds=bounds.record_seconds,
        )


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse":
    """Make the refunds of one batch; returns the messages that SQS is to deliver again."""
    return application.consumer.consume(event, context)
