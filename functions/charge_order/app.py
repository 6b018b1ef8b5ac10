"""charge_order: the payment service's function, fed by the payments queue. This file only puts the parts together."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from pydantic import Field, TypeAdapter

from charge_order.charge import ChargeOrder
from onecharge.contract.cancellations import CancelRequestedEvent
from onecharge.contract.events import OrderPlacedEvent
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.charges.worker import PaymentWorker
from onecharge.payments.stripe_account import StripeAccount
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.aws import client_config
from onecharge.runtime.consumer import queue_consumer
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.metrics import Counts

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext

ORDER_EVENT: TypeAdapter[OrderPlacedEvent | CancelRequestedEvent] = TypeAdapter(
    Annotated[OrderPlacedEvent | CancelRequestedEvent, Field(discriminator="type")]
)
"""Everything that the payments queue carries."""


class Application:
    """Everything that outlives an invocation: clients with their connections, threads, derived time bounds."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        config = client_config()
        self._logger = Logger()
        self.counts = Counts(Metrics())
        self._bounds = TimeBounds.of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        self._store = PaymentStore(boto3.client("dynamodb", config=config), environment["PAYMENTS_TABLE"])
        self._stripe = StripeAccount(environment, config=config, bounds=self._bounds)
        self.consumer = queue_consumer(
            model=ORDER_EVENT,
            # With the Stripe key as it is now. A key that cannot be read is an outage: each message backs off.
            handle=lambda event: self._charge_order()(event),
            queue_url=environment["PAYMENTS_QUEUE_URL"],
            dlq_url=environment["PAYMENTS_DLQ_URL"],
            logger=self._logger,
            count=self.counts,
            record_seconds=self._bounds.record_seconds,
        )

    def _charge_order(self) -> ChargeOrder:
        worker = PaymentWorker(
            store=self._store,
            gateway=self._stripe.gateway(),
            clock=time.time,
            logger=self._logger,
            count=self.counts,
        )
        return ChargeOrder(
            store=self._store,
            worker=worker,
            bounds=self._bounds,
            clock=time.time,
            logger=self._logger,
            count=self.counts,
        )


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse":
    """Charge the orders of one batch; returns the messages that SQS is to deliver again."""
    return application.consumer.consume(event, context)
