"""The naive worker: what tutorials on Lambda, SQS and Stripe show ("check, work, mark").

It reads the order's item; unless it says PAID, it charges, then puts the item as paid. The loop is the one of
"Implementing partial batch responses" (AWS Lambda Developer Guide, "Handling errors for an SQS event source in
Lambda"); it prints its event, as in "Tutorial: Using Lambda with Amazon SQS". Not a design to copy.
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
    """Charge one order, unless it is stored as paid."""
    order = json.loads(record["body"])["data"]
    key = {"order_id": {"S": order["order_id"]}}
    stored = dynamodb.get_item(TableName=os.environ["TABLE"], Key=key, ConsistentRead=True).get("Item", key)
    if stored.get("status") == {"S": "PAID"}:
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
    dynamodb.put_item(TableName=os.environ["TABLE"], Item={**stored, "status": {"S": "PAID"}})


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Process each record; returns those that failed."""
    print(json.dumps(event))
    failures = []
    for record in event["Records"]:
        try:
            process(record)
        except Exception as error:
            print(f"{record['messageId']}: {error!r}")
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}
