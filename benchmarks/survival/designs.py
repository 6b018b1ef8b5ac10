"""The designs that people copy in order not to charge twice, each as small as it is published, and ours.

A design is what one Lambda function does with the messages of its queue. It is written against boto3's DynamoDB client
and stripe's client, and knows nothing of the simulation below it. What they share, because AWS's documentation advises
it to all ("Creating and configuring an Amazon SQS event source mapping"): a visibility timeout of six times the
function's timeout, maxReceiveCount 5, a DLQ, partial batch responses. What they also share, so that none is put at a
disadvantage by a default: stripe's client retries twice, as `max_network_retries=2` makes it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

from charge_order.app import ORDER_EVENT
from charge_order.charge import ChargeOrder
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.charges.worker import PaymentWorker
from onecharge.payments.time_bounds import STRIPE_RETRIES
from onecharge.runtime.consumer import Consumer
from onecharge.runtime.queues import Delivery
from testing.silent import SILENT
from testing.simulation.service import BOUNDS, PAYMENTS
from testing.simulation.world import MAX_RECEIVE_COUNT

DAY_SECONDS = 24 * 3600

Record = Mapping[str, Any]
"""One record of the event that Lambda gets from a queue or a stream."""

Handler = Callable[[dict[str, Any], Any], Any]
"""A Lambda function's handler: `handler(event, context)`."""


@dataclass(frozen=True)
class Tools:
    """What a deployed function finds in its module: its clients, its clock, its logger."""

    dynamodb: Any
    stripe: Any
    now: Callable[[], int]
    log_exception: Callable[[], None]
    """Logs the exception that is being handled."""
    queue: Any
    """For the one design that changes the visibility of its messages: ours."""


Start = Callable[[Tools], Handler]
"""A cold start: what stands outside the handler, run once, and the handler that it makes."""


@dataclass(frozen=True, eq=False)
class Design:
    """One way not to charge twice; `keys` names the key attributes of its tables."""

    name: str
    title: str
    """In at most two lines."""
    start: Start
    keys: Mapping[str, tuple[str, ...]]
    ttl_attribute: str = "expires_at"
    stripe_retries: int = 2
    max_receive_count: int = 5
    fifo: bool = False
    outbox: str | None = None
    """A table whose inserts are fed to `relay`, as a DynamoDB stream does it."""
    relay: Start | None = None
    cannot_meet: Mapping[str, str] = field(default_factory=dict)
    """Faults that this design's messaging excludes, by name, and why."""


def each_record(tools: Tools, process: Callable[[Record], None]) -> Handler:
    """The loop of AWS's "Implementing partial batch responses": what raises comes back, the rest is done."""

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        failures = []
        for record in event["Records"]:
            try:
                process(record)
            except Exception:
                tools.log_exception()
                failures.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failures}

    return handler


def order_in(record: Record) -> dict[str, Any]:
    """The order that a message is about."""
    order: dict[str, Any] = json.loads(record["body"])["data"]
    return order


def payment_of(order: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the PaymentIntent that pays for the order."""
    return {
        "amount": order["amount_minor"],
        "currency": order["currency"].lower(),
        "payment_method": order["payment_method"],
        "confirm": True,
        "metadata": {"order_id": order["order_id"], "customer_id": order["customer_id"]},
    }


# ---------------------------------------------------------------- the designs


def message_id_for_a_day(tools: Tools) -> Handler:
    """The SQS message id is put on the condition that it is new, kept for 24 hours; then the order is charged.

    As commonly published (blog posts on "deduplicating SQS messages with DynamoDB"), and close to AWS re:Post, "How can
    I prevent an Amazon SQS message from invoking my Lambda function more than once?".
    """

    def process(record: Record) -> None:
        try:
            tools.dynamodb.put_item(
                TableName="ProcessedMessages",
                Item={
                    "message_id": {"S": record["messageId"]},
                    "expires_at": {"N": str(tools.now() + DAY_SECONDS)},
                },
                ConditionExpression="attribute_not_exists(message_id)",
            )
        except tools.dynamodb.exceptions.ConditionalCheckFailedException:
            return  # A duplicate: skipped.
        tools.stripe.v1.payment_intents.create(payment_of(order_in(record)))

    return each_record(tools, process)


def get_then_put(tools: Tools) -> Handler:
    """Look whether the order is there, charge it, put it.

    As commonly published ("check, work, mark").
    """

    def process(record: Record) -> None:
        order = order_in(record)
        key = {"order_id": {"S": order["order_id"]}}
        if "Item" in tools.dynamodb.get_item(TableName="ProcessedOrders", Key=key, ConsistentRead=True):
            return
        tools.stripe.v1.payment_intents.create(payment_of(order))
        tools.dynamodb.put_item(TableName="ProcessedOrders", Item=key)

    return each_record(tools, process)


def message_id_for_five_seconds(tools: Tools) -> Handler:
    """A lock on the message id that expires after five seconds, then the charge.

    As commonly published for Redis (`SET message-id 1 NX EX 5`), here as a conditional put.
    """

    def process(record: Record) -> None:
        try:
            tools.dynamodb.put_item(
                TableName="Locks",
                Item={"message_id": {"S": record["messageId"]}, "expires_at": {"N": str(tools.now() + 5)}},
                ConditionExpression="attribute_not_exists(message_id) OR expires_at < :now",
                ExpressionAttributeValues={":now": {"N": str(tools.now())}},
            )
        except tools.dynamodb.exceptions.ConditionalCheckFailedException:
            return
        tools.stripe.v1.payment_intents.create(payment_of(order_in(record)))

    return each_record(tools, process)


def claim_first(tools: Tools) -> Handler:
    """The order id is claimed by a conditional put, kept for 7 days; whoever claims charges, with a Stripe key.

    As commonly published ("claim-first"); the key is the order's id, as Stripe's documentation, "Idempotent requests",
    lets one choose it.
    """

    def process(record: Record) -> None:
        order = order_in(record)
        try:
            tools.dynamodb.put_item(
                TableName="Claims",
                Item={
                    "order_id": {"S": order["order_id"]},
                    "expires_at": {"N": str(tools.now() + 7 * DAY_SECONDS)},
                },
                ConditionExpression="attribute_not_exists(order_id)",
            )
        except tools.dynamodb.exceptions.ConditionalCheckFailedException:
            return
        tools.stripe.v1.payment_intents.create(payment_of(order), {"idempotency_key": order["order_id"]})

    return each_record(tools, process)


def fifo_and_composite_key(tools: Tools) -> Handler:
    """A FIFO topic and queue, deduplicated on the order id; then a conditional put of order id and attempt.

    The messaging is that of the Amazon SQS documentation, "Exactly-once processing" and "FIFO queue delivery logic":
    a second publish within five minutes is dropped, and one message of a group is in flight at a time. The put is as
    commonly published.
    """

    def process(record: Record) -> None:
        order = order_in(record)
        try:
            tools.dynamodb.put_item(
                TableName="Payments",
                Item={"order_id": {"S": order["order_id"]}, "attempt": {"N": str(order["attempt"])}},
                ConditionExpression="attribute_not_exists(order_id)",
            )
        except tools.dynamodb.exceptions.ConditionalCheckFailedException:
            return
        tools.stripe.v1.payment_intents.create(payment_of(order))

    return each_record(tools, process)


def outbox(tools: Tools) -> Handler:
    """The consumer of an outbox: one transaction writes the payment, if it is new, and an item for the relay.

    AWS Prescriptive Guidance, "Transactional outbox pattern", with DynamoDB Streams.
    """

    def process(record: Record) -> None:
        order = order_in(record)
        payment = {"order_id": {"S": order["order_id"]}, "status": {"S": "PENDING"}}
        try:
            tools.dynamodb.transact_write_items(
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
        except tools.dynamodb.exceptions.TransactionCanceledException as canceled:
            if canceled.response["CancellationReasons"][0]["Code"] != "ConditionalCheckFailed":
                raise

    return each_record(tools, process)


def outbox_relay(tools: Tools) -> Handler:
    """The relay of the outbox: charges what was inserted, and marks it as sent.

    What it raises makes the stream send the record again, until the record is 24 hours old (AWS Lambda documentation,
    "Lambda parameters for Amazon DynamoDB event source mappings": retries are infinite by default). A relay that
    sees that an item was sent skips it: many that are published do not look, and would do worse here.
    """

    def handler(event: dict[str, Any], context: Any) -> None:
        for record in event["Records"]:
            image = record["dynamodb"]["NewImage"]
            key = {"order_id": image["order_id"]}
            item = tools.dynamodb.get_item(TableName="Outbox", Key=key, ConsistentRead=True).get("Item", image)
            if item["status"] == {"S": "SENT"}:
                continue
            tools.stripe.v1.payment_intents.create(payment_of(json.loads(image["order"]["S"])))
            tools.dynamodb.update_item(
                TableName="Outbox",
                Key=key,
                UpdateExpression="SET #status = :sent",
                ExpressionAttributeNames={"#status": "status"},
                ExpressionAttributeValues={":sent": {"S": "SENT"}},
            )

    return handler


def powertools(tools: Tools, *, with_stripe_key: bool = False) -> Handler:
    """Powertools for AWS Lambda (Python): `idempotent_function` in a batch, keyed on the order id. The real library.

    Its documentation, "Idempotency", sections "Idempotent_function decorator" (keyed on `order_id`), "Batch
    processing", "Lambda timeouts" (the context is registered). Everything else is at its default: a record expires
    after an hour. As in the payment example there ("Choosing a payload subset"), the provider gets no key.
    """
    processor = BatchProcessor(event_type=EventType.SQS)
    persistence_layer = DynamoDBPersistenceLayer(table_name="IdempotencyTable", boto3_client=tools.dynamodb)
    config = IdempotencyConfig(event_key_jmespath="order_id")

    @idempotent_function(  # type: ignore[untyped-decorator]
        data_keyword_argument="order", config=config, persistence_store=persistence_layer
    )
    def process_order(order: dict[str, Any]) -> dict[str, Any]:
        options = {"idempotency_key": order["order_id"]} if with_stripe_key else {}
        payment = tools.stripe.v1.payment_intents.create(payment_of(order), options)
        return {"payment_id": payment.id}

    def record_handler(record: SQSRecord) -> dict[str, Any]:
        answer: dict[str, Any] = process_order(order=record.json_body["data"])
        return answer

    def handler(event: dict[str, Any], context: Any) -> Any:
        config.register_lambda_context(context)
        return process_partial_response(
            event=event, record_handler=record_handler, processor=processor, context=context
        )

    return handler


def powertools_with_stripe_key(tools: Tools) -> Handler:
    """The same, and the order's id is Stripe's idempotency key: what most readers would add."""
    return powertools(tools, with_stripe_key=True)


def onecharge(tools: Tools) -> Handler:
    """Ours, deployed as template.yaml deploys it: Consumer, ChargeOrder, PaymentWorker, PaymentStore and StripeGateway.

    docs/protocol.md; wired as testing/simulation/world.py wires it.
    """
    store = PaymentStore(tools.dynamodb, PAYMENTS)
    worker = PaymentWorker(
        store=store, gateway=StripeGateway(tools.stripe), clock=tools.now, logger=SILENT, count=SILENT
    )
    consumer = Consumer(
        model=ORDER_EVENT,
        handle=ChargeOrder(
            store=store,
            worker=worker,
            bounds=BOUNDS,
            clock=tools.now,
            logger=SILENT,
            count=SILENT,
        ),
        queue=tools.queue,
        logger=_OnlyExceptions(tools),  # type: ignore[arg-type]  # What the consumer calls.
        count=SILENT,
        threads=None,  # type: ignore[arg-type]  # One record at a time here.
        jitter=lambda: 0.5,
    )

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        [record] = event["Records"]
        done = consumer.process(Delivery.of(SQSRecord(record)))
        return {"batchItemFailures": [] if done else [{"itemIdentifier": record["messageId"]}]}

    return handler


@dataclass(frozen=True)
class _OnlyExceptions:
    """A logger that is silent about all but what was not expected."""

    tools: Tools

    def exception(self, *_: object, **__: object) -> None:
        self.tools.log_exception()

    def info(self, *_: object, **__: object) -> None:
        pass

    warning = error = info


# ---------------------------------------------------------------- all of them

_FIFO_DELIVERS_ONE_AT_A_TIME = "a FIFO queue has one message of a group in flight at a time"

DESIGNS: Mapping[str, Design] = {
    design.name: design
    for design in (
        Design("message-id", "message id\nkept for 24 h", message_id_for_a_day, {"ProcessedMessages": ("message_id",)}),
        Design("get-put", "get, charge,\nput", get_then_put, {"ProcessedOrders": ("order_id",)}),
        Design("lock-5s", "lock that\nexpires in 5 s", message_id_for_five_seconds, {"Locks": ("message_id",)}),
        Design("claim-first", "claim first,\nStripe key", claim_first, {"Claims": ("order_id",)}),
        Design(
            "fifo",
            "FIFO,\ncomposite key",
            fifo_and_composite_key,
            {"Payments": ("order_id", "attempt")},
            fifo=True,
            cannot_meet={
                "delivered-twice-at-once": _FIFO_DELIVERS_ONE_AT_A_TIME,
                "delivered-again-while-slow": _FIFO_DELIVERS_ONE_AT_A_TIME,
            },
        ),
        Design(
            "outbox",
            "outbox,\nrelay charges",
            outbox,
            {"Payments": ("order_id",), "Outbox": ("order_id",)},
            outbox="Outbox",
            relay=outbox_relay,
        ),
        Design(
            "powertools",
            "Powertools\nidempotency",
            powertools,
            {"IdempotencyTable": ("id",)},
            ttl_attribute="expiration",
        ),
        Design(
            "powertools-key",
            "Powertools,\nStripe key",
            powertools_with_stripe_key,
            {"IdempotencyTable": ("id",)},
            ttl_attribute="expiration",
        ),
        Design(
            "onecharge",
            "onecharge",
            onecharge,
            {PAYMENTS: ("order_id",)},
            stripe_retries=STRIPE_RETRIES,
            max_receive_count=MAX_RECEIVE_COUNT,
        ),
    )
}
