"""docs/guides/react.md: its subscriber, as it stands there, ships each paid order once."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import boto3
import pytest

from onecharge.contract.events import EventType, PaymentEventType, PaymentOutcome, PaymentOutcomeEvent
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.topics import Topic
from tests.shop.builders import T0
from tests.support.harness import PROJECT, LambdaContext, Log, load_template, received

GUIDE = (PROJECT / "docs/guides/react.md").read_text()
ORDER_ID = "ord_" + "a" * 32


def block(language: str) -> str:
    [found] = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    return str(found)


class Subscriber:
    """The guide's handler, its queue, and what it shipped."""

    def __init__(self, module: ModuleType, queue_url: str, topic_arn: str) -> None:
        self.module, self.queue_url = module, queue_url
        log = Log()
        self.topic = Topic(boto3.client("sns"), topic_arn, log.logger, lambda name: None)
        self.sqs = boto3.client("sqs")
        self.shipped: list[tuple[str, int, str]] = []
        self.fails = 0
        module.ship = self.ship  # type: ignore[attr-defined]  # The guide's place for the reader's own code.

    def ship(self, *order: Any) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("the warehouse does not answer")
        self.shipped.append(order)

    def publish(self, event_type: PaymentEventType, revision: int, **changes: Any) -> None:
        """As publish_events does it."""
        given = {"order_id": ORDER_ID, "attempt": 1, "amount_minor": 2500, "currency": "EUR", "occurred_at": T0}
        outcome = PaymentOutcome.model_validate({**given, "revision": revision, **changes})
        assert self.topic.publish([PaymentOutcomeEvent.of(event_type, outcome, correlation_id="c")]) == []

    def deliver(self) -> int:
        """Receive a batch, and handle it as Lambda does; returns how many messages stay in the queue."""
        messages = self.sqs.receive_message(
            QueueUrl=self.queue_url, MaxNumberOfMessages=10, VisibilityTimeout=0, AttributeNames=["All"]
        ).get("Messages", [])
        failed = self.module.handler(received(messages), LambdaContext())["batchItemFailures"]
        names = {each["itemIdentifier"] for each in failed}
        for each in messages:
            if each["MessageId"] not in names:
                self.sqs.delete_message(QueueUrl=self.queue_url, ReceiptHandle=each["ReceiptHandle"])
        return len(names)


class Deployed:
    """The resources of the guide's template, made as CloudFormation makes them: moto has no CloudFormation here."""

    def __init__(self, template: Path, topic_arn: str) -> None:
        self.resources = load_template(str(template))["Resources"]
        self.sqs, self.values = boto3.client("sqs"), {"Ref PaymentEventsTopicArn": topic_arn}
        for name in ("FulfillmentDlq", "FulfillmentQueue"):
            attributes = {key: self.text(value) for key, value in self.properties(name).items()}
            url = self.sqs.create_queue(QueueName=name, Attributes=cast(Any, attributes))["QueueUrl"]
            answer = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
            self.values |= {f"Ref {name}": url, f"GetAtt {name}.Arn": answer["Attributes"]["QueueArn"]}
        policy = self.properties("FulfillmentQueuePolicy")
        for url in policy["Queues"]:
            self.sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(policy["PolicyDocument"])})
        subscription = self.properties("FulfillmentSubscription")
        given = {key: subscription.pop(key) for key in ("TopicArn", "Protocol", "Endpoint")}
        attributes = {key: self.text(value) for key, value in subscription.items()}
        boto3.client("sns").subscribe(**given, Attributes=attributes)
        table = self.properties("ShippedTable")
        del table["TimeToLiveSpecification"]
        boto3.client("dynamodb").create_table(TableName="shipped", **table)

    def properties(self, name: str) -> dict[str, Any]:
        """The properties of a resource, with what they refer to."""
        return dict(self.resolved(self.resources[name]["Properties"]))

    def resolved(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.resolved(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.resolved(each) for each in value]
        return self.values.get(value, value) if isinstance(value, str) else value

    @staticmethod
    def text(value: Any) -> str:
        """As an attribute of SNS or SQS."""
        return value if isinstance(value, str) else json.dumps(value)


@pytest.fixture
def subscriber(aws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subscriber:
    topic_arn = boto3.client("sns").create_topic(Name="payment-events")["TopicArn"]
    (tmp_path / "template.yaml").write_text(block("yaml"))
    deployed = Deployed(tmp_path / "template.yaml", topic_arn)
    monkeypatch.setenv("SHIPPED_TABLE", "shipped")
    module = ModuleType("fulfillment_of_the_guide")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(block("python"), "docs/guides/react.md", "exec"), module.__dict__)  # noqa: S102  # Our own guide.
    return Subscriber(module, deployed.values["Ref FulfillmentQueue"], topic_arn)


def succeeded(subscriber: Subscriber, **changes: Any) -> None:
    subscriber.publish(EventType.PAYMENT_SUCCEEDED, **{"revision": 2, **changes})


def test_a_paid_order_is_shipped_once(subscriber: Subscriber) -> None:
    """Its event comes twice, and another one of it after a dispute: only the first ships."""
    for revision in (2, 2, 3):
        succeeded(subscriber, revision=revision)
        assert subscriber.deliver() == 0
    assert subscriber.shipped == [(ORDER_ID, 2500, "EUR")]
    succeeded(subscriber, order_id="ord_" + "b" * 32)
    assert subscriber.deliver() == 0
    assert len(subscriber.shipped) == 2


def test_other_events_do_not_reach_the_queue(subscriber: Subscriber) -> None:
    """The subscription's filter policy reads the attribute that publish_events sets."""
    subscriber.publish(EventType.PAYMENT_DECLINED, 2)
    subscriber.publish(EventType.PAYMENT_NEEDS_REVIEW, 2)
    assert "Messages" not in subscriber.sqs.receive_message(QueueUrl=subscriber.queue_url)


def test_what_fails_stays_in_the_queue(subscriber: Subscriber) -> None:
    """It alone: the batch's other message is done. Its next delivery ships it."""
    subscriber.fails = 1
    for order in "ab":
        succeeded(subscriber, order_id="ord_" + order * 32)
    assert subscriber.deliver() == 1
    assert len(subscriber.shipped) == 1
    assert subscriber.deliver() == 0
    assert {order_id for order_id, *_ in subscriber.shipped} == {"ord_" + order * 32 for order in "ab"}


def test_what_was_refunded_before_is_not_shipped(subscriber: Subscriber) -> None:
    """An event may be late."""
    succeeded(subscriber, revision=4, amount_refunded_minor=2500)
    assert subscriber.deliver() == 0
    assert subscriber.shipped == []


def test_an_order_is_shipped_once_its_review_approves_it(subscriber: Subscriber) -> None:
    """Another event says so; the first one must not use the order up."""
    succeeded(subscriber, revision=2, fraud_suspicion="review")
    assert (subscriber.deliver(), subscriber.shipped) == (0, [])
    succeeded(subscriber, revision=3)
    assert (subscriber.deliver(), len(subscriber.shipped)) == (0, 1)


def test_the_template_fits_the_handler(subscriber: Subscriber, tmp_path: Path) -> None:
    """Failures are reported one by one; a message is hidden for six times the timeout, then put aside."""
    resources = load_template(str(tmp_path / "template.yaml"))["Resources"]
    function, queue = (resources[name]["Properties"] for name in ("FulfillmentFunction", "FulfillmentQueue"))
    assert function["Events"]["Paid"]["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert queue["VisibilityTimeout"] >= 6 * function["Timeout"]
    assert function["Handler"] == "app.handler"
    assert subscriber.module.handler
    attributes = subscriber.sqs.get_queue_attributes(QueueUrl=subscriber.queue_url, AttributeNames=["All"])
    policy = json.loads(attributes["Attributes"]["RedrivePolicy"])
    assert (policy["maxReceiveCount"], "FulfillmentDlq" in policy["deadLetterTargetArn"]) == (20, True)


def test_an_order_is_remembered_for_as_long_as_its_events_come(subscriber: Subscriber) -> None:
    """A refund, and so an event, is possible while the payment's row lives."""
    assert subscriber.module.once_an_order.expires_after_seconds > RETENTION_SECONDS


def test_the_topic_is_an_output() -> None:
    """Under the name that the guide's command asks for."""
    assert "PaymentEventsTopicArn" in block("sh")
    assert load_template()["Outputs"]["PaymentEventsTopicArn"]["Value"] == "Ref PaymentEventsTopic"
