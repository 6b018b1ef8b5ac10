"""update_order: the order service's ear. Payment events come in, the order's status follows, never backwards."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from pydantic import Field, TypeAdapter

from onecharge.aws import BATCH_SIZE, client_config
from onecharge.deliveries import Consumer, Disposition, Done, Queue
from onecharge.dynamodb import to_item
from onecharge.events import PaymentOutcome, PaymentOutcomeEvent, RefundOutcomeEvent
from onecharge.metrics import Counts
from onecharge.states import OrderStatus
from update_order.order_states import MOVES
from update_order.refunds import UpdateRefund

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_dynamodb import DynamoDBClient


PAYMENT_EVENT: TypeAdapter[PaymentOutcomeEvent | RefundOutcomeEvent] = TypeAdapter(
    Annotated[PaymentOutcomeEvent | RefundOutcomeEvent, Field(discriminator="type")]
)
"""Everything that the payment service publishes."""


class NoSuchOrder(Exception):
    """A payment for an order that the table does not have: it is tried again, and ends in the DLQ."""


@dataclass(frozen=True)
class UpdateOrder:
    """Moves orders with one conditional write each."""

    client: "DynamoDBClient"
    table: str
    logger: Logger
    count: Callable[[str], None]

    def __call__(self, event: PaymentOutcomeEvent) -> Disposition:
        status, movable_from = MOVES[event.type]
        moved = self._move(event.data, status, movable_from)
        self.count(f"Order.{status}" if moved else "OrderUnmoved")
        self.logger.info(
            "order moved" if moved else "order stands where it stood",
            extra={
                "status": status,
                "order_id": event.data.order_id,
                "attempt": event.data.attempt,
                "correlation_id": event.correlationid,
            },
        )
        return Done()

    def _move(self, outcome: PaymentOutcome, status: OrderStatus, movable_from: frozenset[OrderStatus]) -> bool:
        allowed = {f":from_{place}": state for place, state in enumerate(sorted(movable_from))}
        remembered = {
            "status": status,
            **({"decline_code": outcome.decline_code} if outcome.decline_code else {}),
            **({"client_secret": outcome.client_secret} if outcome.client_secret else {}),
        }
        try:
            self.client.update_item(
                TableName=self.table,
                Key=to_item({"order_id": outcome.order_id}),
                UpdateExpression="SET #status = :status, outcomes.#attempt = :remembered",
                # What an earlier attempt came to says nothing about the present one.
                ConditionExpression=f"attempt = :attempt AND #status IN ({', '.join(allowed)})",
                ExpressionAttributeNames={"#status": "status", "#attempt": str(outcome.attempt)},
                ExpressionAttributeValues=to_item(
                    {":status": status, ":attempt": outcome.attempt, ":remembered": remembered, **allowed}
                ),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            if "Item" not in refused.response:
                raise NoSuchOrder(outcome.order_id) from None
            return False
        return True


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        config = client_config()
        sqs, dynamodb = boto3.client("sqs", config=config), boto3.client("dynamodb", config=config)
        logger = Logger()
        self.counts = Counts(Metrics())
        orders_table = environment["ORDERS_TABLE"]
        self._update_order = UpdateOrder(dynamodb, orders_table, logger, self.counts)
        self._update_refund = UpdateRefund(dynamodb, orders_table, environment["REFUNDS_TABLE"], logger, self.counts)
        self.consumer = Consumer(
            model=PAYMENT_EVENT,
            handle=self._update,
            queue=Queue(sqs, environment["ORDER_UPDATES_QUEUE_URL"], environment["ORDER_UPDATES_DLQ_URL"]),
            logger=logger,
            count=self.counts,
            threads=ThreadPoolExecutor(max_workers=BATCH_SIZE, thread_name_prefix="record"),
        )

    def _update(self, event: PaymentOutcomeEvent | RefundOutcomeEvent) -> Disposition:
        return self._update_refund(event) if isinstance(event, RefundOutcomeEvent) else self._update_order(event)


@cache
def _application() -> Application:
    return Application(os.environ)


def handler(event: dict[str, Any], context: "LambdaContext") -> "PartialItemFailureResponse":
    """Move the orders of one batch; returns the messages that SQS is to deliver again."""
    application = _application()
    try:
        return application.consumer.consume(event, context)
    finally:
        application.counts.flush()
