"""Writes to a customer whose payment still waits for them (3-D Secure in a closed tab): one mail for each attempt."""

import json
import logging
import os
from typing import Any

import boto3
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent_function

ses, cognito, dynamodb = boto3.client("sesv2"), boto3.client("cognito-idp"), boto3.client("dynamodb")
batch = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False, logger=logging.getLogger())
done = DynamoDBPersistenceLayer(os.environ["DONE_TABLE"])
once_an_attempt = IdempotencyConfig(event_key_jmespath="[order_id, attempt]", expires_after_seconds=24 * 3600)


def email_of(customer_id: str) -> Any:
    """The customer's id is the subject of its tokens. If you have an issuer of your own, ask it here."""
    if not (pool := os.environ["USER_POOL"]):
        return f"{customer_id}@example.com"  # As with `make local`: nobody receives this.
    user = cognito.admin_get_user(UserPoolId=pool, Username=customer_id)
    return next(each["Value"] for each in user["UserAttributes"] if each["Name"] == "email")


@idempotent_function(data_keyword_argument="waits", persistence_store=done, config=once_an_attempt)
def send_mail(waits: Any, to: str) -> None:
    """SES takes no idempotency key: if the function is killed in here, the customer may get the mail twice."""
    text = f"Your bank asks you to confirm your payment: {os.environ['SHOP_URL']}#/orders/{waits['order_id']}"
    mail: Any = {"Simple": {"Subject": {"Data": "Please confirm your payment"}, "Body": {"Text": {"Data": text}}}}
    ses.send_email(FromEmailAddress=os.environ["MAIL_FROM"], Destination={"ToAddresses": [to]}, Content=mail)


def handle(record: Any) -> None:
    waits = json.loads(record.body)["data"]
    key: Any = {"order_id": {"S": waits["order_id"]}}
    order = dynamodb.get_item(TableName=os.environ["ORDERS_TABLE"], Key=key)["Item"]
    status, is_its_attempt = order["status"]["S"], int(order["attempt"]["N"]) == waits["attempt"]
    if status == "PENDING" and is_its_attempt:
        raise RuntimeError("the order has not received this event yet")  # SQS delivers it again in three minutes.
    if status == "REQUIRES_ACTION" and is_its_attempt:
        send_mail(waits=waits, to=email_of(order["customer_id"]["S"]))


def handler(event: Any, context: Any) -> Any:
    once_an_attempt.register_lambda_context(context)
    return process_partial_response(event=event, record_handler=handle, processor=batch, context=context)
