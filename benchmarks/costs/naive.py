"""The naive loop: what tutorials on Lambda, SQS and Stripe show, in the two functions that they show.

Commonly published; AWS Lambda Developer Guide, "Tutorial: Using Lambda with Amazon SQS", has the loop, and Stripe's
"Accept a payment" the request. The order is stored, and sent to a queue. The worker reads it, charges it in one
request, and stores that it is paid. Each function prints its event. It charges twice when a message comes twice
(benchmarks/survival, "get, charge, put"): this is what it costs, not a design to copy.
"""

import json
import os
import uuid
from typing import Any

import boto3
import stripe

dynamodb = boto3.client("dynamodb")
sqs = boto3.client("sqs")
_secret = boto3.client("secretsmanager").get_secret_value(SecretId=os.environ["STRIPE_SECRET_ARN"])["SecretString"]
client = stripe.StripeClient(_secret, base_addresses={"api": os.environ["STRIPE_API_BASE"]})


def place_order(event: dict[str, Any], context: object) -> dict[str, Any]:
    """POST /orders."""
    print(json.dumps(event))  # noqa: T201
    body = json.loads(event["body"])
    order_id = str(uuid.uuid4())
    amount = sum(each["quantity"] * each["unit_amount"] for each in body["items"])
    order = {"order_id": order_id, "amount": amount, "currency": body["currency"], "card": body["payment_method"]}
    item = {"order_id": {"S": order_id}, "status": {"S": "PENDING"}, "order": {"S": json.dumps(order)}}
    dynamodb.put_item(TableName=os.environ["ORDERS_TABLE"], Item=item)
    sqs.send_message(QueueUrl=os.environ["PAYMENTS_QUEUE_URL"], MessageBody=json.dumps(order))
    return {"statusCode": 202, "body": json.dumps({"order_id": order_id})}


def charge_orders(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Messages of the queue, one after the other."""
    print(json.dumps(event))  # noqa: T201
    for record in event["Records"]:
        order = json.loads(record["body"])
        key = {"order_id": {"S": order["order_id"]}}
        stored = dynamodb.get_item(TableName=os.environ["ORDERS_TABLE"], Key=key, ConsistentRead=True)["Item"]
        if stored["status"]["S"] == "PAID":
            continue
        client.v1.payment_intents.create(
            {
                "amount": order["amount"],
                "currency": order["currency"],
                "payment_method": order["card"],
                "allowed_payment_method_types": ["card"],
                "confirm": True,
            }
        )
        dynamodb.put_item(TableName=os.environ["ORDERS_TABLE"], Item={**stored, "status": {"S": "PAID"}})
    return {"batchItemFailures": []}
