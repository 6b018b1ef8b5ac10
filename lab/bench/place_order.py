"""POST /orders as tutorials show it: the order is stored, then sent to a queue. It serves all designs but ours."""

import json
import os
import uuid
from typing import Any

import boto3

PRICES_MINOR = {"mug": 1250, "postcard": 199}
dynamodb = boto3.client("dynamodb")
sqs = boto3.client("sqs")


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Store the order, and send it."""
    print(json.dumps(event))
    body = json.loads(event["body"])
    order_id = f"ord_{uuid.uuid4().hex}"
    order = {
        "order_id": order_id,
        "amount_minor": sum(each["quantity"] * PRICES_MINOR[each["sku"]] for each in body["items"]),
        "currency": body["currency"],
        "payment_method": body["payment_method"],
    }
    item = {"order_id": {"S": order_id}, "status": {"S": "PENDING"}, "order": {"S": json.dumps(order)}}
    dynamodb.put_item(TableName=os.environ["ORDERS_TABLE"], Item=item)
    sqs.send_message(QueueUrl=os.environ["PAYMENTS_QUEUE_URL"], MessageBody=json.dumps({"data": order}))
    return {"statusCode": 202, "body": json.dumps({"order_id": order_id})}
