"""Ships each paid order once."""

import json
import os
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent_function

logger = Logger(service="fulfillment")
batch = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)
shipped = DynamoDBPersistenceLayer(os.environ["SHIPPED_TABLE"])
# 530 days: no event of an order comes later.
once_an_order = IdempotencyConfig(event_key_jmespath="order_id", expires_after_seconds=530 * 24 * 3600)


@idempotent_function(data_keyword_argument="paid", persistence_store=shipped, config=once_an_order)
def ship(paid: dict[str, Any]) -> None:
    """If the function is killed in here, it is called again: pass the order id on as an idempotency key."""
    if paid.get("amount_refunded_minor") or paid.get("dispute_status"):
        logger.warning("not shipped: refunded or disputed", extra={"order_id": paid["order_id"]})
        return
    logger.info("shipped", extra={"order_id": paid["order_id"]})  # Put your code here.


def handle(record: Any) -> None:
    """If it raises, SQS delivers the message again; after 20 receives it is in the DLQ."""
    paid = json.loads(record.body)["data"]
    logger.info("delivered", extra={"order_id": paid["order_id"]})
    ship(paid=paid)


def handler(event: dict[str, Any], context: Any) -> Any:
    once_an_order.register_lambda_context(context)
    return process_partial_response(event=event, record_handler=handle, processor=batch, context=context)
