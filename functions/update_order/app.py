"""update_order: consumes the payment service's events, and updates orders and refunds. Puts the parts together."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from pydantic import Field, TypeAdapter

from onecharge.contract.events import PaymentOutcomeEvent, RefundOutcomeEvent
from onecharge.runtime.aws import client_config
from onecharge.runtime.consumer import Disposition, queue_consumer
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.metrics import Counts
from update_order.orders import UpdateOrder
from update_order.refunds import UpdateRefund

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext


PAYMENT_EVENT: TypeAdapter[PaymentOutcomeEvent | RefundOutcomeEvent] = TypeAdapter(
    Annotated[PaymentOutcomeEvent | RefundOutcomeEvent, Field(discriminator="type")]
)
"""Everything that the payment service publishes."""


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        dynamodb = boto3.client("dynamodb", config=client_config())
        logger = Logger()
        self.counts = Counts(Metrics())
        orders_table, refunds_table = environment["ORDERS_TABLE"], environment["ORDER_REFUNDS_TABLE"]
        self._update_order = UpdateOrder(dynamodb, orders_table, logger, self.counts)
        self._update_refund = UpdateRefund(dynamodb, orders_table, refunds_table, logger, self.counts)
        self.consumer = queue_consumer(
            model=PAYMENT_EVENT,
            handle=self._update,
            queue_url=environment["ORDER_UPDATES_QUEUE_URL"],
            dlq_url=environment["ORDER_UPDATES_DLQ_URL"],
            logger=logger,
            count=self.counts,
        )

    def _update(self, event: PaymentOutcomeEvent | RefundOutcomeEvent) -> Disposition:
        return self._update_refund(event) if isinstance(event, RefundOutcomeEvent) else self._update_order(event)


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse":
    """Update the orders and refunds of one batch; returns the messages that SQS is to deliver again."""
    return application.consumer.consume(event, context)
