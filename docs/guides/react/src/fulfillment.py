"""Ships what is paid, once an order."""

import json
import logging
import os
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service="fulfillment")
batch = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False, logger=logging.getLogger())
done = DynamoDBPersistenceLayer(os.environ["DONE_TABLE"])
once_an_order = IdempotencyConfig(
    event_key_jmespath="order_id",
    raise_on_no_idempotency_key=True,
    # The default is an hour. Later than this no event of the order comes.
    expires_after_seconds=530 * 24 * 3600,
)


def ship(order_id: str, amount_minor: int, currency: str) -> None:
    """Your code. If the function is killed in it, it is called again: give the order id on as an idempotency key."""
    logger.info("shipped", extra={"order_id": order_id, "amount_minor": amount_minor, "currency": currency})


@idempotent_function(data_keyword_argument="paid", persistence_store=done, config=once_an_order)
def ship_once(paid: dict[str, Any]) -> None:
    """Ship an order whose money is still there; a second event of the order does nothing."""
    if paid.get("amount_refunded_minor") or paid.get("dispute_status"):
        logger.warning("not shipped: refunded or disputed before", extra={"order_id": paid["order_id"]})
        return
    ship(paid["order_id"], paid["amount_minor"], paid["currency"])


def handle(record: SQSRecord) -> None:
    """An error leaves the message in the queue; it is delivered again, and after 20 receives it is in the DLQ."""
    paid = json.loads(record.body)["data"]
    logger.info("delivered", extra={"order_id": paid["order_id"]})
    ship_once(paid=paid)


def handler(event: dict[str, Any], context: LambdaContext) -> PartialItemFailureResponse:
    once_an_order.register_lambda_context(context)
    return process_partial_response(event=event, record_handler=handle, processor=batch, context=context)
