"""Powertools for AWS Lambda (Python): `idempotent_function`, keyed on the order id, with the batch processor.

As its documentation has it: "Idempotency", sections "Idempotent_function decorator", "Batch integration" and "Lambda
timeouts" (the context is registered); "Batch Processing", section "Processing messages from SQS". Everything else is at
its default.
"""

import os
from typing import Any

import stripe
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

processor = BatchProcessor(event_type=EventType.SQS)
persistence_layer = DynamoDBPersistenceLayer(table_name=os.environ["TABLE"])
config = IdempotencyConfig(event_key_jmespath="order_id")
client = stripe.StripeClient(
    os.environ["STRIPE_API_KEY"], base_addresses={"api": os.environ["STRIPE_API_BASE"]}, max_network_retries=2
)


@idempotent_function(  # type: ignore[untyped-decorator]
    data_keyword_argument="order", config=config, persistence_store=persistence_layer
)
def process_order(order: dict[str, Any]) -> dict[str, Any]:
    """Charge one order."""
    payment = client.v1.payment_intents.create(
        {
            "amount": order["amount_minor"],
            "currency": order["currency"].lower(),
            "payment_method": order["payment_method"],
            "allowed_payment_method_types": ["card"],
            "confirm": True,
            "metadata": {"order_id": order["order_id"]},
        }
    )
    return {"payment_id": payment.id}


def record_handler(record: SQSRecord) -> dict[str, Any]:
    result: dict[str, Any] = process_order(order=record.json_body["data"])
    return result


def handler(event: dict[str, Any], context: Any) -> Any:
    """Process each record, one after the other; returns those that failed."""
    config.register_lambda_context(context)
    return process_partial_response(event=event, record_handler=record_handler, processor=processor, context=context)
