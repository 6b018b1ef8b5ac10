"""publish_events: what is stored is published as a CloudEvent, the same one every time, or Lambda retries."""

import json
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from onecharge.contract.events import (
    ORDER_SERVICE,
    PAYMENT_SERVICE,
    CancelRequestedEvent,
    OrderPlacedEvent,
    PaymentOutcomeEvent,
)
from onecharge.contract.refunds import RefundOutcomeEvent, RefundRequestedEvent, RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.schema import StoredOrder
from onecharge.runtime.alarms import Cause
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.topics import Topic
from publish_events import mapping
from publish_events.failed_records import FailedRecords, key_of
from publish_events.mapping import TABLES, UnknownTable
from publish_events.publish import NotPublished, Publisher
from testing.harness import Log, Sample, load_template
from testing.silent import SILENT

NAMES = {
    "ORDERS_TABLE": "orders",
    "PAYMENTS_TABLE": "payments",
    "ORDER_REFUNDS_TABLE": "order-refunds",
    "REFUNDS_TABLE": "refunds",
}
MAPPINGS = {NAMES[variable]: mapping for variable, mapping in TABLES.items()}
event_from_record = partial(mapping.event_from_record, mappings=MAPPINGS)


def record(sample: Sample, name: str) -> dict[str, Any]:
    event = sample(f"publish_events/{name}")
    return dict(event["Records"][0])


def test_a_stored_order_is_an_order_placed(sample: Sample) -> None:
    """And the event is the one that charge_order's sample shows."""
    event = event_from_record(record(sample, "order_stored"))
    assert isinstance(event, OrderPlacedEvent)
    body = sample("charge_order/order_placed")["Records"][0]["body"]
    assert event == OrderPlacedEvent.model_validate_json(body)


@pytest.mark.parametrize(
    ("name", "event_type"),
    [("payment_succeeded", "onecharge.payment.succeeded"), ("payment_declined", "onecharge.payment.declined")],
)
def test_a_finalized_payment_is_a_payment_outcome(sample: Sample, name: str, event_type: str) -> None:
    """Its type says which; its correlation id is the order's."""
    event = event_from_record(record(sample, name))
    assert isinstance(event, PaymentOutcomeEvent)
    assert (event.type, event.correlationid) == (event_type, "JKJaXmPLvHcESHA=")


def test_a_new_attempt_is_an_order_placed_too(sample: Sample) -> None:
    """With the new card; placed_at is the order's own, from which the age of the order counts."""
    again = {**record(sample, "order_stored"), "eventName": "MODIFY"}
    again["dynamodb"]["NewImage"] |= {
        "attempt": {"N": "2"},
        "payment_method": {"S": "pm_2"},
        "attempt_placed_at": {"S": "2026-11-03T09:00:00+00:00"},
    }
    event = event_from_record(again)
    assert isinstance(event, OrderPlacedEvent)
    assert (event.data.attempt, event.data.payment_method, event.id) == (2, "pm_2", f"{event.subject}:2:placed")
    assert event.data.placed_at.isoformat() == "2026-11-01T09:00:00+00:00"


def test_a_record_makes_the_same_event_every_time(sample: Sample) -> None:
    """Its id included, so that a consumer recognizes a duplicate."""
    stored = record(sample, "order_stored")
    assert event_from_record(stored) == event_from_record(stored)


def test_a_cancellation_is_published(sample: Sample) -> None:
    """With all that a payment of the order would have needed."""
    event = event_from_record(record(sample, "cancel_requested"))
    placed = event_from_record(record(sample, "order_stored"))
    assert isinstance(event, CancelRequestedEvent)
    assert isinstance(placed, OrderPlacedEvent)
    assert event.data.model_dump() == placed.data.model_dump()
    assert event.id == f"{placed.subject}:1:cancel_requested"


def test_each_revision_of_a_payment_is_an_event(sample: Sample) -> None:
    """A dispute or a re-emitted outcome: another id, the same time, and what Stripe shows by now."""
    row = record(sample, "payment_succeeded")
    first = event_from_record(row)
    row["dynamodb"]["NewImage"] |= {
        "revision": {"N": "4"},
        "amount_refunded_minor": {"N": "100"},
        "dispute_status": {"S": "won"},
        "last_emitted_at": {"N": "1793600000"},
    }
    second = event_from_record(row)
    assert isinstance(first, PaymentOutcomeEvent)
    assert isinstance(second, PaymentOutcomeEvent)
    assert (first.id, second.id) == (f"{first.subject}:1:succeeded:3", f"{first.subject}:1:succeeded:4")
    assert (first.data.revision, second.data.revision) == (3, 4)
    assert (second.data.amount_refunded_minor, second.data.dispute_status) == (100, "won")
    assert first.time == second.time == datetime.fromtimestamp(1793523602, UTC)


def test_a_decline_has_its_codes(sample: Sample) -> None:
    """Stripe's decline code and advice; a success after a decline has neither."""
    row = record(sample, "payment_declined")
    declined = event_from_record(row)
    row["dynamodb"]["NewImage"]["state"] = {"S": "SUCCEEDED"}
    succeeded = event_from_record(row)
    assert isinstance(declined, PaymentOutcomeEvent)
    assert isinstance(succeeded, PaymentOutcomeEvent)
    assert (declined.data.decline_code, declined.data.advice_code) == ("insufficient_funds", "try_again_later")
    assert (succeeded.data.decline_code, succeeded.data.advice_code) == (None, None)


def test_the_streams_arn_names_the_table(sample: Sample) -> None:
    """No attribute of the item does: an order may have a `state`, a payment a `status`, either a `refund_id`."""
    order, payment = record(sample, "order_stored"), record(sample, "payment_succeeded")
    order["dynamodb"]["NewImage"] |= {"state": {"S": "SUCCEEDED"}, "refund_id": {"S": "x"}}
    payment["dynamodb"]["NewImage"] |= {"status": {"S": "PENDING"}, "refund_id": {"S": "x"}}
    assert isinstance(event_from_record(order), OrderPlacedEvent)
    assert isinstance(event_from_record(payment), PaymentOutcomeEvent)


def test_a_record_of_another_table_is_reported(sample: Sample, log: Log) -> None:
    """Nothing is guessed from its attributes; the error names the table."""
    stray = record(sample, "order_stored")
    stray["eventSourceARN"] = stray["eventSourceARN"].replace("table/orders", "table/others")
    with pytest.raises(UnknownTable, match="others"):
        event_from_record(stray)
    s3 = S3()
    publisher(Sns(), log, s3=s3).publish([stray])
    [(_, aside)] = s3.objects.items()
    assert aside["responseContext"] == {"functionError": "UnknownTable"}


def test_an_internal_change_is_not_published(sample: Sample) -> None:
    """A payment that is PENDING, an order that is PAID, an item that expired."""
    pending = record(sample, "payment_succeeded")
    pending["dynamodb"]["NewImage"]["state"] = {"S": "PENDING"}
    del pending["dynamodb"]["NewImage"]["finalized_at"]
    paid = {**record(sample, "order_stored"), "eventName": "MODIFY"}
    paid["dynamodb"]["NewImage"]["status"] = {"S": "PAID"}
    assert [event_from_record(each) for each in (pending, paid, record(sample, "order_expired"))] == [None] * 3


STREAMS: dict[str, tuple[str, str, type[StrEnum]]] = {
    "OrderStored": ("order_stored", "status", OrderStatus),
    "RefundStored": ("refund_stored", "status", RefundState),
    "PaymentFinalized": ("payment_succeeded", "state", PaymentState),
    "RefundFinalized": ("refund_succeeded", "state", RefundState),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_the_filters_let_through_what_is_published(sample: Sample, stream: str) -> None:
    """Exactly that: what a filter drops is lost, and what it lets through for nothing costs an invocation."""
    name, attribute, states = STREAMS[stream]
    events = load_template()["Resources"]["PublishEventsFunction"]["Properties"]["Events"]
    filters = [json.loads(each["Pattern"]) for each in events[stream]["Properties"]["FilterCriteria"]["Filters"]]
    let_through = [state for each in filters for state in each["dynamodb"]["NewImage"][attribute]["S"]]
    row = record(sample, name)
    published = []
    for state in states:
        row["dynamodb"]["NewImage"][attribute] = {"S": state}
        if event_from_record(row) is not None:
            published.append(state)
    assert sorted(let_through) == sorted(published)


class Sns:
    """PublishBatch, as boto3's client has it; refuses the entries that the test names, with this code."""

    def __init__(self, refuse: str | None = None, code: str = "Throttled") -> None:
        self.refuse, self.code, self.published = refuse, code, list[tuple[str, dict[str, Any]]]()

    def publish_batch(self, *, TopicArn: str, PublishBatchRequestEntries: list[dict[str, Any]]) -> dict[str, Any]:
        assert 1 <= len(PublishBatchRequestEntries) <= 10
        answer: dict[str, Any] = {"Successful": [], "Failed": []}
        for entry in PublishBatchRequestEntries:
            if self.refuse and self.refuse in entry["Message"]:
                answer["Failed"].append({"Id": entry["Id"], "Code": self.code, "SenderFault": self.code != "Throttled"})
            else:
                self.published.append((TopicArn, entry))
                answer["Successful"].append({"Id": entry["Id"], "MessageId": "m"})
        return answer


class S3:
    """PutObject, as boto3's client has it, for an object that is not there yet."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.is_down, self.objects = is_down, dict[str, dict[str, Any]]()

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, ContentType: str, IfNoneMatch: str) -> None:
        assert (Bucket, ContentType, IfNoneMatch) == ("failed", "application/json", "*")
        if self.is_down:
            raise client_error("SlowDown")
        if Key in self.objects:
            raise client_error("PreconditionFailed")
        self.objects[Key] = json.loads(Body)

    def records(self) -> list[dict[str, Any]]:
        return [record for each in self.objects.values() for record in json.loads(each["payload"])["Records"]]


def client_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": ""}}, "PutObject")


def publisher(
    sns: Any,
    log: Log,
    *,
    orders: str = "orders-topic",
    payments: str = "payments-topic",
    s3: Any = None,
    counts: Any = SILENT,
) -> Publisher:
    topics = {
        ORDER_SERVICE: Topic(sns, orders, log.logger, counts),
        PAYMENT_SERVICE: Topic(sns, payments, log.logger, counts),
    }
    bucket: Any = s3 or S3()
    failed_records = FailedRecords(lambda: bucket, "failed", now=lambda: datetime(2026, 11, 1, tzinfo=UTC))
    return Publisher(MAPPINGS, topics, failed_records, log.logger, counts)


def order_of(number: int, sample: Sample, **changes: Any) -> dict[str, Any]:
    """The stream's record of another order."""
    stored = record(sample, "order_stored")
    order_id = {"order_id": {"S": f"ord_{number:032x}"}}
    stored["eventID"] = f"event-{number}"
    stored["dynamodb"]["Keys"] = order_id
    stored["dynamodb"]["NewImage"] |= {**order_id, **changes}
    return stored


def test_each_event_goes_to_its_topic_with_its_type_as_an_attribute(sample: Sample, log: Log) -> None:
    """Subscriptions filter on the attribute; the message is the CloudEvent."""
    sns = Sns()
    publisher(sns, log).publish([record(sample, "order_stored"), record(sample, "payment_succeeded")])
    assert [
        (topic, json.loads(entry["Message"])["type"], entry["MessageAttributes"]["event_type"]["StringValue"])
        for topic, entry in sns.published
    ] == [
        ("orders-topic", "onecharge.order.placed", "onecharge.order.placed"),
        ("payments-topic", "onecharge.payment.succeeded", "onecharge.payment.succeeded"),
    ]


def test_a_stored_refund_and_its_outcome_are_published(sample: Sample, log: Log) -> None:
    """To the same two topics as an order and its payment; a refund that is PENDING at the payment service is not."""
    sns, records = Sns(), [record(sample, "refund_stored"), record(sample, "refund_succeeded")]
    stored, finalized = [event_from_record(each) for each in records]
    assert isinstance(stored, RefundRequestedEvent)
    assert isinstance(finalized, RefundOutcomeEvent)
    publisher(sns, log).publish(records)
    assert [(topic, json.loads(entry["Message"])["type"]) for topic, entry in sns.published] == [
        ("orders-topic", "onecharge.refund.requested"),
        ("payments-topic", "onecharge.refund.succeeded"),
    ]
    records[0]["dynamodb"]["NewImage"]["status"] = {"S": "SUCCEEDED"}
    records[1]["dynamodb"]["NewImage"]["state"] = {"S": "PENDING"}
    assert [event_from_record(each) for each in records] == [None, None]


def test_a_large_batch_is_published_in_tens(sample: Sample, log: Log) -> None:
    """As many as PublishBatch accepts."""
    sns = Sns()
    publisher(sns, log).publish([record(sample, "order_stored")] * 25)
    assert len(sns.published) == 25


def test_a_refusal_of_sns_is_raised(sample: Sample, log: Log) -> None:
    """PublishBatch responds 200 all the same: Lambda has to retry the batch."""
    with pytest.raises(NotPublished, match="1 of 2 records: Throttled"):
        publisher(Sns(refuse="order.placed"), log).publish(
            [record(sample, "order_stored"), record(sample, "payment_succeeded")]
        )


UNPUBLISHABLE = {
    "an amount that cannot be charged": {"amount_minor": {"N": "-1"}},
    "a fraction": {"amount_minor": {"N": "10.5"}},
    "a time that is none": {"placed_at": {"S": "yesterday"}},
    "another type": {"placed_at": {"NULL": True}},
    "no status": {"status": {}},
}


@pytest.mark.parametrize("spoiled", UNPUBLISHABLE.values(), ids=UNPUBLISHABLE.keys())
def test_an_invalid_record_is_put_aside(sample: Sample, log: Log, spoiled: dict[str, Any]) -> None:
    """Whole, in S3, with an alarm; the others are published, and the stream goes on."""
    sns, s3 = Sns(), S3()
    records = [order_of(1, sample), order_of(2, sample, **spoiled), order_of(3, sample)]
    counted: list[str] = []
    publisher(sns, log, s3=s3, counts=counted.append).publish(records)
    assert counted.count("Alarm") == counted.count("RecordUnpublishable") == 1
    assert [json.loads(entry["Message"])["subject"][-1] for _, entry in sns.published] == ["1", "3"]
    assert s3.objects.keys() == {"unpublishable/orders/event-2.json"}
    assert s3.records() == records[1:2]
    assert [line["order_id"][-1] for line in log.lines if line["level"] == "ERROR"] == ["2"]


@pytest.mark.parametrize("code", ["InvalidParameter", "ParameterValueInvalid", "ValidationException"])
def test_an_event_that_sns_can_never_accept_is_put_aside(sample: Sample, log: Log, code: str) -> None:
    """It is this event's record, and no other's."""
    s3, sns = S3(), Sns(refuse=f"ord_{2:032x}", code=code)
    records = [order_of(number, sample) for number in (1, 2, 3)]
    publisher(sns, log, s3=s3).publish(records)
    assert (len(sns.published), s3.records()) == (2, records[1:2])


@pytest.mark.parametrize("code", ["Throttled", "InternalError", "KMSDisabled", "KMSAccessDenied", "AuthorizationError"])
def test_an_outage_puts_nothing_aside(sample: Sample, log: Log, code: str) -> None:
    """Whoever's fault it is: Lambda retries the batch, without limit."""
    s3 = S3()
    with pytest.raises(NotPublished, match=f"1 of 2 records: {code}"):
        publisher(Sns(refuse=f"ord_{2:032x}", code=code), log, s3=s3).publish(
            [order_of(1, sample), order_of(2, sample)]
        )
    assert s3.objects == {}


WAITING = [
    "order_stored",
    "cancel_requested",
    "refund_stored",
]


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize("shard", [None, {"S": "8"}, {"N": "1"}])
def test_what_waits_and_is_in_no_index_raises_the_alarm(
    sample: Sample, log: Log, name: str, shard: dict[str, str] | None
) -> None:
    """It is published; but if that fails, republish never finds it, and neither do the operators' commands."""
    counted: list[str] = []
    sns, stored = Sns(), record(sample, name)
    del stored["dynamodb"]["NewImage"]["waiting_shard"]
    if shard:
        stored["dynamodb"]["NewImage"]["waiting_shard"] = shard
    publisher(sns, log, counts=lambda metric: counted.append(metric)).publish([stored])
    assert (counted.count("WaitingUnindexed"), len(sns.published)) == (1, 1)
    assert [metric.cause for metric in counted if isinstance(metric, Alarm)] == [Cause.NOT_INDEXED]
    [line] = [line for line in log.lines if line["level"] == "ERROR"]
    assert line["order_id"] == stored["dynamodb"]["Keys"]["order_id"]["S"]


@pytest.mark.parametrize("name", [*WAITING, "payment_succeeded"])
def test_what_is_in_its_index_raises_no_alarm(sample: Sample, log: Log, name: str) -> None:
    """In any shard that is read; an outcome waits for nobody, and has none."""
    counted: list[str] = []
    publisher(Sns(), log, counts=lambda metric: counted.append(metric)).publish([record(sample, name)])
    assert counted == ["EventPublished"]


def test_an_outage_of_one_topic_does_not_block_the_other(sample: Sample, log: Log) -> None:
    """A whole request that fails is retried with its batch, once the other topic has its events."""

    class OrdersAreDown(Sns):
        def publish_batch(self, *, TopicArn: str, PublishBatchRequestEntries: list[dict[str, Any]]) -> dict[str, Any]:
            if TopicArn == "orders-topic":
                raise client_error("InternalError")
            return super().publish_batch(TopicArn=TopicArn, PublishBatchRequestEntries=PublishBatchRequestEntries)

    sns = OrdersAreDown()
    with pytest.raises(NotPublished, match="1 of 2 records: InternalError"):
        publisher(sns, log).publish([record(sample, "order_stored"), record(sample, "payment_succeeded")])
    assert [topic for topic, _ in sns.published] == ["payments-topic"]


def test_a_record_that_cannot_be_put_aside_is_retried(sample: Sample, log: Log) -> None:
    """With its batch, until S3 has it: the stream forgets nothing that is nowhere else."""
    sns, spoiled = Sns(), order_of(2, sample, amount_minor={"N": "-1"})
    with pytest.raises(NotPublished, match="1 of 2 records: SlowDown"):
        publisher(sns, log, s3=S3(is_down=True)).publish([order_of(1, sample), spoiled])
    assert len(sns.published) == 1


def test_a_record_that_is_retried_is_put_aside_once(sample: Sample, log: Log) -> None:
    """One object and one alarm, though another record's failure delivers the batch again and again."""
    s3, spoiled = S3(), order_of(2, sample, amount_minor={"N": "-1"})
    publish = publisher(Sns(refuse=f"ord_{1:032x}"), log, s3=s3).publish
    for _ in range(3):
        with pytest.raises(NotPublished, match="1 of 2 records: Throttled"):
            publish([order_of(1, sample), spoiled])
    assert s3.records() == [spoiled]
    assert len([line for line in log.lines if line["level"] == "ERROR"]) == 1


def test_s3_itself_takes_a_record_once(aws: None, sample: Sample) -> None:
    """Through boto3's own client; the first object stays as it is."""
    boto3.client("s3").create_bucket(Bucket="failed")
    failed_records = FailedRecords(lambda: boto3.client("s3"), "failed", now=lambda: datetime(2026, 11, 1, tzinfo=UTC))
    stored = order_of(1, sample)
    assert [failed_records.put(stored, reason) for reason in ("first", "second")] == [True, False]
    body = json.loads(boto3.client("s3").get_object(Bucket="failed", Key=key_of(stored))["Body"].read())
    assert body["responseContext"] == {"functionError": "first"}
    assert json.loads(body["payload"]) == {"Records": [stored]}


def test_a_later_attempt_is_an_event_of_its_own(sample: Sample) -> None:
    """With its own id, and the time at which the order was placed: whether a lookup is needed depends on that."""
    again = to_item({"attempt": 2, "attempt_placed_at": "2026-11-03T09:00:00+00:00"})
    item = order_of(1, sample)["dynamodb"]["NewImage"]
    first = StoredOrder.from_item(item).placed_event()
    second = StoredOrder.from_item({**item, **again}).placed_event()
    assert (first.id, first.data.placed_at.isoformat()) == (f"{first.subject}:1:placed", "2026-11-01T09:00:00+00:00")
    assert (second.id, second.data.placed_at.isoformat()) == (f"{first.subject}:2:placed", "2026-11-01T09:00:00+00:00")


def test_an_event_reaches_a_queue_raw(aws: None, sample: Sample, log: Log) -> None:
    """Through SNS itself: the body of the message is the CloudEvent."""
    sns, sqs = boto3.client("sns"), boto3.client("sqs")
    topic = sns.create_topic(Name="order-events")["TopicArn"]
    url = sqs.create_queue(QueueName="payments")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"})
    publisher(sns, log, orders=topic).publish([record(sample, "order_stored")])
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert OrderPlacedEvent.model_validate_json(message["Body"]) == event_from_record(record(sample, "order_stored"))
