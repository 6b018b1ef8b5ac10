"""The usual module of a payment function: what its cold start imports, as Powertools' documentation puts it together.

Logger ("Logger", section "Capturing Lambda context info"), a pydantic model of the order ("Parser"), `BatchProcessor`
with `idempotent_function` ("Idempotency", section "Batch integration"), and Stripe's client.
"""

import json
import os
from typing import Any

import stripe
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.serialization.pydantic import PydanticSerializer
from aws_lambda_powertools.utilities.parser import BaseModel


class Order(BaseModel):
    """The order in a message."""

    order_id: str
    amount_minor: int
    currency: str
    payment_method: str


class Charged(BaseModel):
    """The result."""

    payment_id: str


logger = Logger(service="payments")
processor = BatchProcessor(event_type=EventType.SQS)
persistence_layer = DynamoDBPersistenceLayer(table_name=os.environ["TABLE"])
config = IdempotencyConfig(event_key_jmespath="order_id")
client = stripe.StripeClient(
    os.environ["STRIPE_API_KEY"], base_addresses={"api": os.environ["STRIPE_API_BASE"]}, max_network_retries=2
)


@idempotent_function(  # type: ignore[untyped-decorator]
    data_keyword_argument="order",
    config=config,
    persistence_store=persistence_layer,
    output_serializer=PydanticSerializer(model=Charged),
)
def process_order(order: Order) -> Charged:
    """Charge one order."""
    payment = client.v1.payment_intents.create(
        {
            "amount": order.amount_minor,
            "currency": order.currency.lower(),
            "payment_method": order.payment_method,
            "allowed_payment_method_types": ["card"],
            "confirm": True,
            "metadata": {"order_id": order.order_id},
        }
    )
    logger.info("charged", order_id=order.order_id, payment_id=payment.id)
    return Charged(payment_id=payment.id)


def record_handler(record: SQSRecord) -> Charged:
    charged: Charged = process_order(order=Order.model_validate(json.loads(record.body)["data"]))
    return charged


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: Any) -> Any:
    """Process each record, one after the other; returns those that failed."""
    config.register_lambda_context(context)
    return process_partial_response(event=event, record_handler=record_handler, processor=processor, context=context)
