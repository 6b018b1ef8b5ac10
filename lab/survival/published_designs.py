"""Ten designs that people copy to avoid double charges, each as short as it is published.

Their sources are in the docstrings and in README.md.
"""

import json
from typing import Any
from uuid import uuid4

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

from lab.survival.design import (
    DAY_SECONDS,
    Clients,
    DurableContext,
    Handler,
    Record,
    each_record,
    order_in,
    payment_of,
    put_if,
)


def message_id_for_a_day(clients: Clients) -> Handler:
    """Store the SQS message id for 24 hours, by a conditional put; if it is new, charge.

    As commonly published (blog posts on "deduplicating SQS messages with DynamoDB"), and close to AWS re:Post, "How can
    I prevent an Amazon SQS message from invoking my Lambda function more than once?".
    """

    def process(record: Record) -> None:
        item = {"message_id": {"S": record["messageId"]}, "expires_at": {"N": str(clients.now() + DAY_SECONDS)}}
        if put_if(clients, "ProcessedMessages", item, "attribute_not_exists(message_id)"):
            clients.stripe.v1.payment_intents.create(payment_of(order_in(record)))

    return each_record(clients, process)


def get_then_put(clients: Clients) -> Handler:
    """Read the order; if it is not there, charge it, then put it.

    As commonly published ("check, work, mark").
    """

    def process(record: Record) -> None:
        order = order_in(record)
        key = {"order_id": {"S": order["order_id"]}}
        if "Item" in clients.dynamodb.get_item(TableName="ProcessedOrders", Key=key, ConsistentRead=True):
            return
        clients.stripe.v1.payment_intents.create(payment_of(order))
        clients.dynamodb.put_item(TableName="ProcessedOrders", Item=key)

    return each_record(clients, process)


def message_id_for_five_seconds(clients: Clients) -> Handler:
    """Take a lock on the message id that expires after five seconds, then charge.

    As commonly published for Redis (`SET message-id 1 NX EX 5`), here as a conditional put.
    """

    def process(record: Record) -> None:
        item = {"message_id": {"S": record["messageId"]}, "expires_at": {"N": str(clients.now() + 5)}}
        is_free = "attribute_not_exists(message_id) OR expires_at < :now"
        if put_if(clients, "Locks", item, is_free, {":now": {"N": str(clients.now())}}):
            clients.stripe.v1.payment_intents.create(payment_of(order_in(record)))

    return each_record(clients, process)


def claim_first(clients: Clients) -> Handler:
    """Claim the order id for 7 days, by a conditional put; then charge, with an idempotency key.

    As commonly published ("claim-first"). The key is the order's id (Stripe documentation, "Idempotent requests").
    """

    def process(record: Record) -> None:
        order = order_in(record)
        expires_at = clients.now() + 7 * DAY_SECONDS
        item = {"order_id": {"S": order["order_id"]}, "expires_at": {"N": str(expires_at)}}
        if put_if(clients, "Claims", item, "attribute_not_exists(order_id)"):
            clients.stripe.v1.payment_intents.create(payment_of(order), {"idempotency_key": order["order_id"]})

    return each_record(clients, process)


def fifo_and_composite_key(clients: Clients) -> Handler:
    """Deduplicate on the order id with a FIFO topic and queue; then a conditional put, then charge.

    Messaging as in the Amazon SQS documentation, "Exactly-once processing" and "FIFO queue delivery logic": a second
    publish within five minutes is dropped, and one message of a group is in flight at a time. The put is as commonly
    published.
    """

    def process(record: Record) -> None:
        order = order_in(record)
        item = {"order_id": {"S": order["order_id"]}, "attempt": {"N": str(order["attempt"])}}
        if put_if(clients, "Payments", item, "attribute_not_exists(order_id)"):
            clients.stripe.v1.payment_intents.create(payment_of(order))

    return each_record(clients, process)


def outbox(clients: Clients) -> Handler:
    """Write the payment, if it is new, and an outbox item for the relay, in one transaction.

    AWS Prescriptive Guidance, "Transactional outbox pattern", with DynamoDB Streams.
    """

    def process(record: Record) -> None:
        order = order_in(record)
        payment = {"order_id": {"S": order["order_id"]}, "status": {"S": "PENDING"}}
        try:
            clients.dynamodb.transact_write_items(
                TransactItems=[
                    {
                        "Put": {
                            "TableName": "Payments",
                            "Item": payment,
                            "ConditionExpression": "attribute_not_exists(order_id)",
                        }
                    },
                    {"Put": {"TableName": "Outbox", "Item": {**payment, "order": {"S": json.dumps(order)}}}},
                ]
            )
        except clients.dynamodb.exceptions.TransactionCanceledException as canceled:
            if canceled.response["CancellationReasons"][0]["Code"] != "ConditionalCheckFailed":
                raise

    return each_record(clients, process)


def outbox_relay(clients: Clients) -> Handler:
    """The outbox's relay, invoked by its stream: charge each inserted item, then mark it as sent.

    If it raises, Lambda retries the record until it is 24 hours old (AWS Lambda documentation, "Lambda parameters for
    Amazon DynamoDB event source mappings": retries are infinite by default). It skips an item that is marked as sent;
    many published relays do not, and would do worse here.
    """

    def handler(event: dict[str, Any], context: Any) -> None:
        for record in event["Records"]:
            image = record["dynamodb"]["NewImage"]
            key = {"order_id": image["order_id"]}
            item = clients.dynamodb.get_item(TableName="Outbox", Key=key, ConsistentRead=True).get("Item", image)
            if item["status"] == {"S": "SENT"}:
                continue
            clients.stripe.v1.payment_intents.create(payment_of(json.loads(image["order"]["S"])))
            clients.dynamodb.update_item(
                TableName="Outbox",
                Key=key,
                UpdateExpression="SET #status = :sent",
                ExpressionAttributeNames={"#status": "status"},
                ExpressionAttributeValues={":sent": {"S": "SENT"}},
            )

    return handler


def powertools(clients: Clients, *, with_stripe_key: bool = False) -> Handler:
    """Powertools for AWS Lambda (Python), the installed library: `idempotent_function` keyed on the order id.

    As in its documentation, "Idempotency": sections "Idempotent_function decorator", "Batch processing", "Lambda
    timeouts" (the context is registered). Everything else is at its default: a record expires after an hour. As in its
    payment example ("Choosing a payload subset"), the request to the provider has no idempotency key; the column
    "Powertools, Stripe key" adds one.
    """
    processor = BatchProcessor(event_type=EventType.SQS)
    persistence_layer = DynamoDBPersistenceLayer(table_name="IdempotencyTable", boto3_client=clients.dynamodb)
    config = IdempotencyConfig(event_key_jmespath="order_id")

    @idempotent_function(  # type: ignore[untyped-decorator]
        data_keyword_argument="order", config=config, persistence_store=persistence_layer
    )
    def process_order(order: dict[str, Any]) -> dict[str, Any]:
        options = {"idempotency_key": order["order_id"]} if with_stripe_key else {}
        payment = clients.stripe.v1.payment_intents.create(payment_of(order), options)
        return {"payment_id": payment.id}

    def record_handler(record: SQSRecord) -> dict[str, Any]:
        result: dict[str, Any] = process_order(order=record.json_body["data"])
        return result

    def handler(event: dict[str, Any], context: Any) -> Any:
        config.register_lambda_context(context)
        return process_partial_response(
            event=event, record_handler=record_handler, processor=processor, context=context
        )

    return handler


def powertools_with_stripe_key(clients: Clients) -> Handler:
    """The same with the order's id as Stripe's idempotency key: what most readers would add."""
    return powertools(clients, with_stripe_key=True)


def durable_function(clients: Clients) -> Handler:
    """A Lambda durable function behind the queue: checkpoint an idempotency key, then charge with it.

    AWS Durable Execution SDK Developer Guide, "Idempotency and retries", section "Idempotency tokens". AWS Lambda
    Developer Guide, "Idempotency": event source mappings do not support execution names, so each invocation, retries
    included, starts a new execution.
    """

    def handler(event: dict[str, Any], context: Any) -> None:
        durable = DurableContext(clients, context.execution)
        [record] = event["Records"]
        payment = payment_of(order_in(record))
        key = durable.step("idempotency-key", lambda: str(uuid4()))
        durable.step(
            "charge", lambda: str(clients.stripe.v1.payment_intents.create(payment, {"idempotency_key": key}).id)
        )

    return handler


def submit_to_engine(clients: Clients) -> Handler:
    """Submit the order to a durable execution engine, once for each order id while the engine retains it.

    Restate documentation, "Invocations", section "Idempotency". The invocation has a UUID that is stable across
    retries ("Durable steps", section "UUIDs").
    """

    def process(record: Record) -> None:
        order = order_in(record)
        invocation = {
            "order_id": {"S": order["order_id"]},
            "uuid": {"S": str(uuid4())},
            "order": {"S": json.dumps(order)},
        }
        put_if(clients, "Invocations", invocation, "attribute_not_exists(order_id)")

    return each_record(clients, process)


def run_in_engine(clients: Clients) -> Handler:
    """The invocation, run by the engine: create and confirm with the UUID as idempotency key, then journal the result.

    Restate's example "async-signals-payment" (its Stripe call); Temporal recommends the same with the ids of the
    workflow's run and the activity ("Activity Definition", section "Idempotency"). A completed invocation is retained
    for a day (Restate documentation, "Service configuration": default).
    """

    def handler(event: dict[str, Any], context: Any) -> None:
        for record in event["Records"]:
            invocation = record["dynamodb"]["NewImage"]
            key = {"order_id": invocation["order_id"]}
            journal = clients.dynamodb.get_item(TableName="Invocations", Key=key, ConsistentRead=True)
            if "payment" in journal.get("Item", {}):
                continue
            options = {"idempotency_key": invocation["uuid"]["S"]}
            payment = clients.stripe.v1.payment_intents.create(
                payment_of(json.loads(invocation["order"]["S"])), options
            )
            clients.dynamodb.update_item(
                TableName="Invocations",
                Key=key,
                UpdateExpression="SET payment = :payment, expires_at = :expires_at",
                ExpressionAttributeValues={
                    ":payment": {"S": payment.id},
                    ":expires_at": {"N": str(clients.now() + DAY_SECONDS)},
                },
            )

    return handler
