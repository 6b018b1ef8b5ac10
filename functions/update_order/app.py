"""update_order: from the payment service's events to the Orders table. This file only puts the parts together.

    SQS order-updates ─► onecharge.runtime.consumer ─► orders.py: the outcome of a payment ─► one conditional write
                                                       refunds.py: the outcome of a refund ─► one transaction

The allowed moves are in onecharge.orders.transitions; a stale or duplicate event changes nothing.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3

from onecharge.contract.events import Event, PaymentOutcomeEvent, event_adapter
from onecharge.contract.refunds import RefundOutcomeEvent
from onecharge.orders.store import OrderStore
from onecharge.runtime.aws import client_config, dynamodb_client
from onecharge.runtime.consumer import Consumer, Disposition
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.queues import Queue
from update_order.orders import update_order
from update_order.refunds import update_refund

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext


PAYMENT_EVENT = event_adapter(PaymentOutcomeEvent, RefundOutcomeEvent)
"""Everything that the payment service publishes."""


class Application:
    """Everything that lives as long as the execution environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        logger = function_logger()
        self.counts = Counts()
        orders = OrderStore(dynamodb_client(), environment["ORDERS_TABLE"])
        table = environment["ORDER_REFUNDS_TABLE"]
        updates: Mapping[type[Event], Callable[[Any], Disposition]] = {
            PaymentOutcomeEvent: partial(update_order, orders=orders, logger=logger, count=self.counts),
            RefundOutcomeEvent: partial(
                update_refund, orders=orders, refunds_table=table, logger=logger, count=self.counts
            ),
        }
        sqs = boto3.client("sqs", config=client_config())
        self.consumer = Consumer(
            model=PAYMENT_EVENT,
            handle=lambda event: updates[type(event)](event),
            queue=Queue(sqs, environment["ORDER_UPDATES_QUEUE_URL"], environment["ORDER_UPDATES_DLQ_URL"]),
            logger=logger,
            count=self.counts,
        )


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse":
    """Handle one batch of events; returns the messages that SQS is to deliver again."""
    return application.consumer.consume(event, context)
