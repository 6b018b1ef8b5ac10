"""publish_events: what is stored is published as a CloudEvent, the same one every time, or the stream tries again."""

import json
from typing import Any

import boto3
import pytest
from aws_lambda_powertools import Metrics

from onecharge.events import OrderPlacedEvent, PaymentOutcomeEvent
from onecharge.metrics import Counts
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


def test_a_record_makes_the_same_event_every_time(sample: Sample) -> None:
    """Id and all, so that a repeated delivery is seen to be one."""
    stored = record(sample, "order_stored")
    assert event_in(stored) == event_in(stored)


def test_what_is_nobody_elses_business_is_not_published(sample: Sample) -> None:
    """A claim, an order that changed its status, and what its time to live has deleted."""
    claimed = record(sample, "charge_settled")
    claimed["dynamodb"]["NewImage"]["state"] = {"S": "CLAIMED"}
    paid = {**record(sample, "order_stored"), "eventName": "MODIFY"}
    assert [event_in(each) for each in (claimed, paid, record(sample, "order_expired"))] == [None] * 3


class Sns:
    """PublishBatch, as boto3's client has it; refuses the entries that it is told to refuse."""

    def __init__(self, refuse: str | None = None) -> None:
        self.refuse, self.published = refuse, list[tuple[str, dict[str, Any]]]()

    def publish_batch(self, *, TopicArn: str, PublishBatchRequestEntries: list[dict[str, Any]]) -> dict[str, Any]:
        assert 1 <= len(PublishBatchRequestEntries) <= 10
        answer: dict[str, Any] = {"Successful": [], "Failed": []}
        for entry in PublishBatchRequestEntries:
            if self.refuse and self.refuse in entry["Message"]:
                answer["Failed"].append({"Id": entry["Id"], "Code": "Throttled", "SenderFault": False})
            else:
                self.published.append((TopicArn, entry))
                answer["Successful"].append({"Id": entry["Id"], "MessageId": "m"})
        return answer


def publisher(sns: Any, log: Log) -> Publisher:
    return Publisher(sns, "orders-topic", "payments-topic", log.logger, Counts(Metrics(namespace="n", service="s")))


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


def test_a_large_batch_is_published_in_tens(sample: Sample, log: Log) -> None:
    """As many as SNS takes at once."""
    sns = Sns()
    publisher(sns, log).publish([record(sample, "order_stored")] * 25)
    assert len(sns.published) == 25


def test_what_sns_refuses_is_raised(sample: Sample, log: Log) -> None:
    """PublishBatch answers 200 all the same: the stream has to deliver the batch again."""
    with pytest.raises(NotPublished, match="1 of 2 events refused: Throttled"):
        publisher(Sns(refuse="order.placed"), log).publish(
            [record(sample, "order_stored"), record(sample, "charge_settled")]
        )


def test_an_event_reaches_a_queue_raw(aws: None, sample: Sample, log: Log) -> None:
    """Through SNS itself: the body of the message is the CloudEvent."""
    sns, sqs = boto3.client("sns"), boto3.client("sqs")
    topic = sns.create_topic(Name="order-events")["TopicArn"]
    url = sqs.create_queue(QueueName="payments")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"})
    counts = Counts(Metrics(namespace="n", service="s"))
    Publisher(sns, topic, topic, log.logger, counts).publish([record(sample, "order_stored")])
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert OrderPlacedEvent.model_validate_json(message["Body"]) == event_in(record(sample, "order_stored"))
