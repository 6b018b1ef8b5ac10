"""publish_events: what is stored is published as a CloudEvent, the same one every time, or Lambda retries."""

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import boto3
import pytest
from aws_lambda_powertools import Metrics

from onecharge.contract.cancellations import CancelRequestedEvent
from onecharge.contract.events import ORDER_SERVICE, PAYMENT_SERVICE, OrderPlacedEvent, PaymentOutcomeEvent
from onecharge.contract.refunds import RefundOutcomeEvent, RefundRequestedEvent, RefundState, RefundStatus
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.schema import StoredOrder
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.metrics import Counts
from onecharge.runtime.topics import Topic
from publish_events.app import NotPublished, Publisher
from publish_events.mapping import PublishedTables, UnknownTable
from testing.harness import Log, Sample, load_template

TABLES = PublishedTables.of(
    {
        "ORDERS_TABLE": "orders",
        "PAYMENTS_TABLE": "payments",
        "ORDER_REFUNDS_TABLE": "order-refunds",
        "REFUNDS_TABLE": "refunds",
    }
)
event_from_record = TABLES.event_from_record


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
    with pytest.raises(NotPublished, match="1 of 1 records: UnknownTable"):
        publisher(Sns(), log).publish([stray])


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
    "RefundStored": ("refund_stored", "status", RefundStatus),
    "PaymentFinalized": ("payment_succeeded", "state", PaymentState),
    "RefundFinalized": ("refund_succeeded", "state", RefundState),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_the_filters_let_through_what_is_published(sample: Sample, stream: str) -> None:
    """Exactly that: what a filter drops is lost, and what it lets through for nothing costs an invocation."""
    name, attribute, states = STREAMS[stream]
    events = load_template()["Resources"]["PublishEventsFunction"]["Properties"]["Events"]
    [each] = events[stream]["Properties"]["FilterCriteria"]["Filters"]
    let_through = json.loads(each["Pattern"])["dynamodb"]["NewImage"][attribute]["S"]
    row = record(sample, name)
    published = []
    for state in states:
        row["dynamodb"]["NewImage"][attribute] = {"S": state}
        if event_from_record(row) is not None:
            published.append(state)
    assert sorted(let_through) == sorted(published)


class Sns:
    """PublishBatch, as boto3's client has it; refuses the entries that the test names."""

    def __init__(self, refuse: str | None = None, *, sender_fault: bool = False) -> None:
        self.refuse, self.sender_fault, self.published = refuse, sender_fault, list[tuple[str, dict[str, Any]]]()

    def publish_batch(self, *, TopicArn: str, PublishBatchRequestEntries: list[dict[str, Any]]) -> dict[str, Any]:
        assert 1 <= len(PublishBatchRequestEntries) <= 10
        answer: dict[str, Any] = {"Successful": [], "Failed": []}
        for entry in PublishBatchRequestEntries:
            if self.refuse and self.refuse in entry["Message"]:
                code = "InvalidParameter" if self.sender_fault else "Throttled"
                answer["Failed"].append({"Id": entry["Id"], "Code": code, "SenderFault": self.sender_fault})
            else:
                self.published.append((TopicArn, entry))
                answer["Successful"].append({"Id": entry["Id"], "MessageId": "m"})
        return answer


def publisher(sns: Any, log: Log, *, orders: str = "orders-topic", payments: str = "payments-topic") -> Publisher:
    counts = Counts(Metrics(namespace="n", service="s"))
    topics = {
        ORDER_SERVICE: Topic(sns, orders, log.logger, counts),
        PAYMENT_SERVICE: Topic(sns, payments, log.logger, counts),
    }
    return Publisher(TABLES, topics, log.logger, counts)


def order_of(number: int, sample: Sample, **changes: Any) -> dict[str, Any]:
    """The stream's record of another order."""
    stored = record(sample, "order_stored")
    order_id = {"order_id": {"S": f"ord_{number:032x}"}}
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
def test_an_invalid_record_blocks_no_other(sample: Sample, log: Log, spoiled: dict[str, Any]) -> None:
    """The others are published; the error makes Lambda bisect the batch until the record is alone, and reported."""
    sns = Sns()
    records = [order_of(1, sample), order_of(2, sample, **spoiled), order_of(3, sample)]
    with pytest.raises(NotPublished, match="1 of 3 records"):
        publisher(sns, log).publish(records)
    assert [json.loads(entry["Message"])["subject"][-1] for _, entry in sns.published] == ["1", "3"]
    assert [line["order_id"][-1] for line in log.lines if line["level"] == "ERROR"] == ["2"]
    with pytest.raises(NotPublished, match="1 of 1 records"):
        publisher(sns, log).publish(records[1:2])


def test_an_event_that_sns_refuses_permanently_blocks_no_other(sample: Sample, log: Log) -> None:
    """And it is reported as one that no retry helps."""
    sns = Sns(refuse=f"ord_{2:032x}", sender_fault=True)
    with pytest.raises(NotPublished, match="1 of 3 records: InvalidParameter"):
        publisher(sns, log).publish([order_of(number, sample) for number in (1, 2, 3)])
    assert len(sns.published) == 2
    assert [line["order_id"][-1] for line in log.lines if line["level"] == "ERROR"] == ["2"]


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
