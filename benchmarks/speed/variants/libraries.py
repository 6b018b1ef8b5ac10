"""The libraries of charge_order alone: imported, one client, one write for each order. No code of ours takes less."""

import os
from typing import Any

import botocore.session
import stripe
from aws_lambda_powertools import Logger, Metrics
from pydantic import BaseModel


class Order(BaseModel):
    """The order in a message."""

    order_id: str


class Event(BaseModel):
    """A message."""

    data: Order


logger = Logger(service="payments")
metrics = Metrics(namespace="payments", service="payments")
client: Any = botocore.session.get_session().create_client("dynamodb")
charged_as = stripe.PaymentIntent
"""The SDK imports a class with its first use."""


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Write a row for each order."""
    for record in event["Records"]:
        order = Event.model_validate_json(record["body"]).data
        client.put_item(
            TableName=os.environ["TABLE"],
            Item={"order_id": {"S": order.order_id}},
            ConditionExpression="attribute_not_exists(order_id)",
        )
    return {"batchItemFailures": []}
