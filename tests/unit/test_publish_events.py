"""publish_events: what is stored is published as a CloudEvent, the same one every time, or the stream tries again."""

import json
from typing import Any

import boto3
import pytest
from aws_lambda_powertools import Metrics

from onecharge.dynamodb import from_item
from onecharge.events import OrderPlacedEvent, PaymentOutcomeEvent, RefundOutcomeEvent, RefundRequestedEvent
from onecharge.metrics import Counts
from onecharge.orders import order_placed
from onecharge.topics import Topic
from publish_events.app import NotPublished, Publisher
from publish_events.facts import event_in
from tests.conftest import Log, Sample


def record(sample: Sample, name: str) -> dict[str, Any]:
    event = sample(f"publish_events/{name}")
    return dict(event["Records"][0])


def test_a_stored_order_is_an_order_placed(sample: Sample) -> None:
    """And the event is the one that charge_order's sample shows."""
    event = event_in(record(sample, "order_stored"))
    assert isinstance(event, OrderPlacedEvent)
    body = sample("charge_order/order_placed")["Records"][0]["body"]
    assert event == OrderPlacedEvent.model_validate_json(body)


@pytest.mark.parametrize(
    ("name", "event_type"),
    [("charge_settled", "onecharge.payment.succeeded"), ("charge_declined", "onecharge.payment.declined")],
)
def test_a_settled_charge_is_a_payment_outcome(sample: Sample, name: str, event_type: str) -> None:
    """Its type says which; its correlation id is the order's."""
    event = event_in(record(sample, name))
    assert isinstance(event, PaymentOutcomeEvent)
    assert (event.type, event.correlationid) == (event_type, "JKJaXmPLvHcESHA=")


def test_a_new_attempt_is_an_order_placed_too(sample: Sample) -> None:
    """With the new card, and the time at which it was tried: the freshness rule counts from there."""
    again = {**record(sample, "order_stored"), "eventName": "MODIFY"}
    again["dynamodb"]["NewImage"] |= {
        "attempt": {"N": "2"},
        "payment_method": {"S": "pm_2"},
        "attempt_placed_at": {"S": "2026-11-03T09:00:00+00:00"},
    }
    event = event_in(again)
    assert isinstance(event, OrderPlacedEvent)
    assert (event.data.attempt, event.data.payment_method, event.id) == (2, "pm_2", f"{event.subject}:2:placed")
    assert event.data.placed_at.isoformat() == "2026-11-03T09:00:00+00:00"


def test_a_record_makes_the_same_event_every_time(sample: Sample) -> None:
    """Id and all, so that a repeated delivery is seen to be one."""
    stored = record(sample, "order_stored")
    assert event_in(stored) == event_in(stored)


def test_what_is_nobody_elses_business_is_not_published(sample: Sample) -> None:
    """A claim, an order that changed its status, and what its time to live has deleted."""
    claimed = record(sample, "charge_settled")
    claimed["dynamodb"]["NewImage"]["state"] = {"S": "CLAIMED"}
    paid = {**record(sample, "order_stored"), "eventName": "MODIFY"}
    paid["dynamodb"]["NewImage"]["status"] = {"S": "PAID"}
    assert [event_in(each) for each in (claimed, paid, record(sample, "order_expired"))] == [None] * 3


class Sns:
    """PublishBatch, as boto3's client has it; refuses the entries that it is told to refuse."""

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
    topics = [Topic(sns, arn, log.logger, counts) for arn in (orders, payments)]
    return Publisher(*topics, log.logger, counts)


def order_of(place: int, sample: Sample, **changes: Any) -> dict[str, Any]:
    """The stream's record of another order."""
    stored = record(sample, "order_stored")
    order_id = {"order_id": {"S": f"ord_{place:032x}"}}
    stored["dynamodb"]["Keys"] = order_id
    stored["dynamodb"]["NewImage"] |= {**order_id, **changes}
    return stored


def test_each_event_goes_to_its_topic_with_its_type_as_an_attribute(sample: Sample, log: Log) -> None:
    """Subscriptions filter on the attribute; the message is the CloudEvent."""
    sns = Sns()
    publisher(sns, log).publish([record(sample, "order_stored"), record(sample, "charge_settled")])
    assert [
        (topic, json.loads(entry["Message"])["type"], entry["MessageAttributes"]["event_type"]["StringValue"])
        for topic, entry in sns.published
    ] == [
        ("orders-topic", "onecharge.order.placed", "onecharge.order.placed"),
        ("payments-topic", "onecharge.payment.succeeded", "onecharge.payment.succeeded"),
    ]


def test_a_stored_refund_and_its_outcome_are_published(sample: Sample, log: Log) -> None:
    """To the same two topics as an order and its payment; neither a claim nor a refund that was told of."""
    sns, records = Sns(), [record(sample, "refund_stored"), record(sample, "refund_settled")]
    stored, settled = [event_in(each) for each in records]
    assert isinstance(stored, RefundRequestedEvent)
    assert isinstance(settled, RefundOutcomeEvent)
    publisher(sns, log).publish(records)
    assert [(topic, json.loads(entry["Message"])["type"]) for topic, entry in sns.published] == [
        ("orders-topic", "onecharge.refund.requested"),
        ("payments-topic", "onecharge.refund.succeeded"),
    ]
    records[0]["dynamodb"]["NewImage"]["status"] = {"S": "SUCCEEDED"}
    records[1]["dynamodb"]["NewImage"]["state"] = {"S": "CLAIMED"}
    assert [event_in(each) for each in records] == [None, None]


def test_a_large_batch_is_published_in_tens(sample: Sample, log: Log) -> None:
    """As many as SNS takes at once."""
    sns = Sns()
    publisher(sns, log).publish([record(sample, "order_stored")] * 25)
    assert len(sns.published) == 25


def test_what_sns_refuses_is_raised(sample: Sample, log: Log) -> None:
    """PublishBatch answers 200 all the same: the stream has to deliver the batch again."""
    with pytest.raises(NotPublished, match="1 of 2 records: Throttled"):
        publisher(Sns(refuse="order.placed"), log).publish(
            [record(sample, "order_stored"), record(sample, "charge_settled")]
        )


UNPUBLISHABLE = {
    "an amount that cannot be charged": {"amount_minor": {"N": "-1"}},
    "a fraction": {"amount_minor": {"N": "10.5"}},
    "a time that is none": {"placed_at": {"S": "yesterday"}},
    "another type": {"placed_at": {"NULL": True}},
    "no status": {"status": {}},
}


@pytest.mark.parametrize("spoiled", UNPUBLISHABLE.values(), ids=UNPUBLISHABLE.keys())
def test_a_record_that_can_be_no_event_holds_up_no_other(sample: Sample, log: Log, spoiled: dict[str, Any]) -> None:
    """All others of its batch are published; then it is raised for, so that bisecting finds it alone, and told."""
    sns = Sns()
    records = [order_of(1, sample), order_of(2, sample, **spoiled), order_of(3, sample)]
    with pytest.raises(NotPublished, match="1 of 3 records"):
        publisher(sns, log).publish(records)
    assert [json.loads(entry["Message"])["subject"][-1] for _, entry in sns.published] == ["1", "3"]
    assert [line["order_id"][-1] for line in log.lines if line["level"] == "ERROR"] == ["2"]
    with pytest.raises(NotPublished, match="1 of 1 records"):
        publisher(sns, log).publish(records[1:2])


def test_an_event_that_sns_refuses_for_good_holds_up_no_other(sample: Sample, log: Log) -> None:
    """Nor does it pass for something that a retry helps."""
    sns = Sns(refuse=f"ord_{2:032x}", sender_fault=True)
    with pytest.raises(NotPublished, match="1 of 3 records: InvalidParameter"):
        publisher(sns, log).publish([order_of(place, sample) for place in (1, 2, 3)])
    assert len(sns.published) == 2
    assert [line["order_id"][-1] for line in log.lines if line["level"] == "ERROR"] == ["2"]


def test_a_later_attempt_is_an_event_of_its_own(sample: Sample) -> None:
    """With its own id, and the time at which that attempt began: its key's age counts from there."""
    item = from_item(order_of(1, sample)["dynamodb"]["NewImage"])
    first = order_placed(item)
    second = order_placed({**item, "attempt": 2, "attempt_placed_at": "2026-11-03T09:00:00+00:00"})
    assert (first.id, first.data.placed_at.isoformat()) == (f"{first.subject}:1:placed", "2026-11-01T09:00:00+00:00")
    assert (second.id, second.data.placed_at.isoformat()) == (f"{first.subject}:2:placed", "2026-11-03T09:00:00+00:00")


def test_an_event_reaches_a_queue_raw(aws: None, sample: Sample, log: Log) -> None:
    """Through SNS itself: the body of the message is the CloudEvent."""
    sns, sqs = boto3.client("sns"), boto3.client("sqs")
    topic = sns.create_topic(Name="order-events")["TopicArn"]
    url = sqs.create_queue(QueueName="payments")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"})
    publisher(sns, log, orders=topic).publish([record(sample, "order_stored")])
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert OrderPlacedEvent.model_validate_json(message["Body"]) == event_in(record(sample, "order_stored"))
