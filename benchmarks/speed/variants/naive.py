"""The naive loop: read the order; if it is not there, charge it, then put it. Not safe (see benchmarks/survival).

As commonly published ("check, work, mark"), in the loop of "Implementing partial batch responses" (AWS Lambda Developer
Guide, "Handling errors for an SQS event source in Lambda"); clients are made outside of the handler ("Best practices
for working with AWS Lambda functions").
"""

import json
import os
from typing import Any

import boto3
import stripe

dynamodb = boto3.client("dynamodb")
client = stripe.StripeClient(
    os.environ["STRIPE_API_KEY"], base_addresses={"api": os.environ["STRIPE_API_BASE"]}, max_network_retries=2
)


def process(record: dict[str, Any]) -> None:
    """Charge one order, unless it is stored as charged."""
    order = json.loads(record["body"])["data"]
    key = {"order_id": {"S": order["order_id"]}}
    if "Item" in dynamodb.get_item(TableName=os.environ["TABLE"], Key=key, ConsistentRead=True):
        return
    client.v1.payment_intents.create(
        {
            "amount": order["amount_minor"],
            "currency": order["currency"].lower(),
            "payment_method": order["payment_method"],
            "allowed_payment_method_types": ["card"],
            "confirm": True,
            "metadata": {"order_id": order["order_id"]},
        }
    )
    dynamodb.put_item(TableName=os.environ["TABLE"], Item=key)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Process each record; returns those that failed."""
    failures = []
    for record in event["Records"]:
        try:
            process(record)
        except Exception as error:
            print(f"{record['messageId']}: {error!r}")
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}
