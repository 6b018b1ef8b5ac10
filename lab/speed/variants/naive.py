"""The naive loop: what tutorials on Lambda, SQS and Stripe show, in the two functions that they show.

The order is stored, and sent to a queue. The worker reads it; unless it is paid, it is charged, then put as paid
("check, work, mark"). The loop is the one of "Implementing partial batch responses" (AWS Lambda Developer Guide,
"Handling errors for an SQS event source in Lambda"); each function prints its event, as in "Tutorial: Using Lambda with
Amazon SQS". It charges twice when a message comes twice at once (lab/survival): not a design to copy.
"""

import json
import os
import uuid
from typing import Any

import boto3
import stripe

PRICES = {"mug": 1250, "postcard": 199}
"""In cents, euro."""

dynamodb = boto3.client("dynamodb")
sqs = boto3.client("sqs")
client = stripe.StripeClient(
    os.environ["STRIPE_API_KEY"], base_addresses={"api": os.environ["STRIPE_API_BASE"]}, max_network_retries=2
)


def place_order(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """POST /orders."""
    print(json.dumps(event))
    body = json.loads(event["body"])
    order_id = f"ord_{uuid.uuid4().hex}"
    order = {
        "order_id": order_id,
        "amount_minor": sum(each["quantity"] * PRICES[each["sku"]] for each in body["items"]),
        "currency": body["currency"],
        "payment_method": body["payment_method"],
    }
    item = {"order_id": {"S": order_id}, "status": {"S": "PENDING"}, "order": {"S": json.dumps(order)}}
    dynamodb.put_item(TableName=os.environ["ORDERS_TABLE"], Item=item)
    sqs.send_message(QueueUrl=os.environ["PAYMENTS_QUEUE_URL"], MessageBody=json.dumps({"data": order}))
    return {"statusCode": 202, "body": json.dumps({"order_id": order_id})}


def process(record: dict[str, Any]) -> None:
    """Charge one order, unless it is stored as paid."""
    order = json.loads(record["body"])["data"]
    key = {"order_id": {"S": order["order_id"]}}
    stored = dynamodb.get_item(TableName=os.environ["TABLE"], Key=key, ConsistentRead=True)["Item"]
    if stored["status"]["S"] == "PAID":
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
