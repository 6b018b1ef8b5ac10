"""Seven designs that people copy to avoid double charges, each as short as it is published."""

from typing import Any

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
    put_if_new,
)


def message_id_for_a_day(clients: Clients) -> Handler:
    """Store the SQS message id for 24 hours, by a conditional put; if it is new, charge.

    As commonly published, and close to AWS re:Post, "How can I prevent an Amazon SQS message from invoking my Lambda
    function more than once?".
    """

    def process(record: Record) -> None:
        item = {"message_id": {"S": record["messageId"]}, "expires_at": {"N": str(clients.now() + DAY_SECONDS)}}
        if put_if_new(clients, "ProcessedMessages", item):
            clients.stripe.v1.payment_intents.create(payment_of(order_in(record)))

    return each_record(clients, process)


def get_then_put(clients: Clients) -> Handler:
    """Read the order; if it is not there, charge it, then put it. As commonly published ("check, work, mark")."""

    def process(record: Record) -> None:
        order = order_in(record)
        key = {"order_id": {"S": order["order_id"]}}
        if "Item" in clients.dynamodb.get_item(TableName="ProcessedOrders", Key=key, ConsistentRead=True):
            return
        clients.stripe.v1.payment_intents.create(payment_of(order))
        clients.dynamodb.put_item(TableName="ProcessedOrders", Item=key)

    return each_record(clients, process)


def claim_first(clients: Clients) -> Handler:
    """Claim the order id for 7 days, by a conditional put; then charge. As commonly published ("claim-first")."""

    def process(record: Record) -> None:
        order = order_in(record)
        expires_at = clients.now() + 7 * DAY_SECONDS
        item = {"order_id": {"S": order["order_id"]}, "expires_at": {"N": str(expires_at)}}
        if put_if_new(clients, "Claims", item):
            clients.stripe.v1.payment_intents.create(payment_of(order), {"idempotency_key": order["order_id"]})

    return each_record(clients, process)


def stripe_key_alone(clients: Clients) -> Handler:
    """Charge with the order id as idempotency key (Stripe documentation, "Idempotent requests"), and store nothing."""

    def process(record: Record) -> None:
        order = order_in(record)
        clients.stripe.v1.payment_intents.create(payment_of(order), {"idempotency_key": order["order_id"]})

    return each_record(clients, process)


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
    """A Lambda durable function: one step creates and confirms the PaymentIntent, and its result is checkpointed.

    As AWS's sample "PaymentProcessing" does it (aws-samples/sample-lambda-durable-functions, payment_processor.py): the
    step has the SDK's default retries, and the request no idempotency key. Afterwards the sample waits for Stripe's
    webhook; nothing is charged there, so it is left out.
    """

    def handler(event: dict[str, Any], context: Any) -> None:
        [record] = event["Records"]
        durable, payment = DurableContext(clients, context.execution), payment_of(order_in(record))
        durable.step("create-payment-intent", lambda: str(clients.stripe.v1.payment_intents.create(payment).id))

    return handler
