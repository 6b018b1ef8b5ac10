"""docs/guides/react/: what is paid is shipped once, and a customer who is waited for gets one mail."""

import json
import re
import sys
from types import ModuleType
from typing import Any, cast

import boto3
import pytest
from botocore.stub import Stubber
from moto.core.models import DEFAULT_ACCOUNT_ID as ACCOUNT_ID
from moto.ses.models import ses_backends

from onecharge.contract.events import EventType, PaymentEventType, PaymentOutcome, PaymentOutcomeEvent
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.topics import Topic
from tests.shop.builders import T0
from tests.support.harness import PROJECT, LambdaContext, Log, create_table, load_template, received

STACK = PROJECT / "docs/guides/react"
ORDER_ID = "ord_" + "a" * 32
SHOP_URL, MAIL_FROM = "https://shop.example.com/", "orders@example.com"


class Subscriber:
    """One of the stack's handlers, and its queue."""

    def __init__(self, name: str, deployed: "Deployed") -> None:
        self.module = ModuleType(f"{name}_of_the_guide")
        deployed.monkeypatch.setitem(sys.modules, self.module.__name__, self.module)
        path = STACK / f"src/{name}.py"
        exec(compile(path.read_text(), path, "exec"), self.module.__dict__)  # noqa: S102  # Our own guide.
        self.queue_url = deployed.values[f"Ref {name.title()}Queue"]
        log = Log()
        self.topic = Topic(boto3.client("sns"), deployed.topic_arn, log.logger, lambda name: None)
        self.sqs = boto3.client("sqs")

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
    """The resources of the stack's template, made as CloudFormation makes them: moto has no CloudFormation here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.topic_arn = boto3.client("sns").create_topic(Name="payment-events")["TopicArn"]
        self.resources = load_template("docs/guides/react/template.yaml")["Resources"]
        self.sqs, self.values = boto3.client("sqs"), {"Ref PaymentEventsTopicArn": self.topic_arn}
        self.values["Ref MailAfterSeconds"] = "0"
        for name in ("Dlq", "FulfillmentQueue", "MailQueue"):
            attributes = {key: self.text(value) for key, value in self.properties(name).items()}
            url = self.sqs.create_queue(QueueName=name, Attributes=cast(Any, attributes))["QueueUrl"]
            answer = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
            self.values |= {f"Ref {name}": url, f"GetAtt {name}.Arn": answer["Attributes"]["QueueArn"]}
        policy = self.properties("QueuePolicy")
        for url in policy["Queues"]:
            self.sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(policy["PolicyDocument"])})
        for name in ("FulfillmentSubscription", "MailSubscription"):
            subscription = self.properties(name)
            given = {key: subscription.pop(key) for key in ("TopicArn", "Protocol", "Endpoint")}
            attributes = {key: self.text(value) for key, value in subscription.items()}
            boto3.client("sns").subscribe(**given, Attributes=attributes)
        table = self.properties("DoneTable")
        del table["TimeToLiveSpecification"]
        boto3.client("dynamodb").create_table(TableName="done", **table)

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
def deployed(aws: None, monkeypatch: pytest.MonkeyPatch) -> Deployed:
    monkeypatch.setenv("DONE_TABLE", "done")
    return Deployed(monkeypatch)


class Fulfillment(Subscriber):
    """It remembers what it shipped."""

    def __init__(self, deployed: Deployed) -> None:
        super().__init__("fulfillment", deployed)
        self.shipped: list[tuple[str, int, str]] = []
        self.fails = 0
        self.module.ship = self.ship  # type: ignore[attr-defined]  # The place for the reader's own code.

    def ship(self, *order: Any) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("the warehouse does not answer")
        self.shipped.append(order)


class Mail(Subscriber):
    """It has an Orders table, and knows what SES was given."""

    def __init__(self, deployed: Deployed) -> None:
        super().__init__("mail", deployed)
        boto3.client("sesv2").create_email_identity(EmailIdentity=MAIL_FROM)

    def waits(self, *, customer: str = "alice", status: str = "REQUIRES_ACTION", attempt: int = 1) -> None:
        """Store the order of the event, as it is when that is delivered."""
        item = {"order_id": ORDER_ID, "customer_id": customer, "status": status, "attempt": attempt}
        boto3.client("dynamodb").put_item(TableName="orders", Item=to_item(item))

    def event(self, attempt: int = 1) -> int:
        """Returns how many messages stay in the queue."""
        self.publish(EventType.PAYMENT_REQUIRES_ACTION, revision=attempt, attempt=attempt)
        return self.deliver()

    @staticmethod
    def sent() -> list[tuple[str, str]]:
        """To whom, and what."""
        messages = ses_backends[ACCOUNT_ID]["us-east-1"].sent_messages
        return [(*each.destinations["ToAddresses"], each.body) for each in messages]


@pytest.fixture
def subscriber(deployed: Deployed) -> Fulfillment:
    return Fulfillment(deployed)


@pytest.fixture
def mail(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> Mail:
    create_table(boto3.client("dynamodb"), "orders", "OrdersTable")
    given = {"ORDERS_TABLE": "orders", "SHOP_URL": SHOP_URL, "MAIL_FROM": MAIL_FROM, "USER_POOL": ""}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return Mail(deployed)


def succeeded(subscriber: Fulfillment, **changes: Any) -> None:
    subscriber.publish(EventType.PAYMENT_SUCCEEDED, **{"revision": 2, **changes})


def test_a_paid_order_is_shipped_once(subscriber: Fulfillment) -> None:
    """Its event comes twice, and another one of it after a dispute: only the first ships."""
    for revision in (2, 2, 3):
        succeeded(subscriber, revision=revision)
        assert subscriber.deliver() == 0
    assert subscriber.shipped == [(ORDER_ID, 2500, "EUR")]
    succeeded(subscriber, order_id="ord_" + "b" * 32)
    assert subscriber.deliver() == 0
    assert len(subscriber.shipped) == 2


def test_other_events_do_not_reach_the_queue(subscriber: Fulfillment) -> None:
    """The subscription's filter policy reads the attribute that publish_events sets."""
    subscriber.publish(EventType.PAYMENT_DECLINED, 2)
    subscriber.publish(EventType.PAYMENT_CANCELED, 2)
    assert "Messages" not in subscriber.sqs.receive_message(QueueUrl=subscriber.queue_url)


def test_what_fails_stays_in_the_queue(subscriber: Fulfillment) -> None:
    """It alone: the batch's other message is done. Its next delivery ships it."""
    subscriber.fails = 1
    for order in "ab":
        succeeded(subscriber, order_id="ord_" + order * 32)
    assert subscriber.deliver() == 1
    assert len(subscriber.shipped) == 1
    assert subscriber.deliver() == 0
    assert {order_id for order_id, *_ in subscriber.shipped} == {"ord_" + order * 32 for order in "ab"}


def test_what_was_refunded_before_is_not_shipped(subscriber: Fulfillment) -> None:
    """An event may be late."""
    succeeded(subscriber, revision=4, amount_refunded_minor=2500)
    assert subscriber.deliver() == 0
    assert subscriber.shipped == []


@pytest.mark.parametrize("name", ["Fulfillment", "Mail"])
def test_the_template_fits_the_handler(deployed: Deployed, name: str) -> None:
    """Failures are reported one by one; a message is hidden for six times the timeout, then put aside."""
    [source] = deployed.resources[f"{name}Function"]["Properties"]["Events"].values()
    assert source["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    timeout = load_template("docs/guides/react/template.yaml")["Globals"]["Function"]["Timeout"]
    assert deployed.resources[f"{name}Queue"]["Properties"]["VisibilityTimeout"] >= 6 * timeout
    url = deployed.values[f"Ref {name}Queue"]
    attributes = deployed.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    policy = json.loads(attributes["Attributes"]["RedrivePolicy"])
    assert (policy["maxReceiveCount"], policy["deadLetterTargetArn"].endswith(":Dlq")) == (20, True)


def test_an_order_is_remembered_for_as_long_as_its_events_come(subscriber: Fulfillment) -> None:
    """A refund, and so an event, is possible while the payment's row lives."""
    assert subscriber.module.once_an_order.expires_after_seconds > RETENTION_SECONDS


def test_a_customer_who_is_waited_for_gets_one_mail(mail: Mail) -> None:
    """It has a link to the order, and nothing else. The next attempt has a mail of its own."""
    mail.waits()
    text = f"Your bank asks you to confirm your payment: {SHOP_URL}#/orders/{ORDER_ID}"
    assert [mail.event(), mail.event()] == [0, 0]
    assert mail.sent() == [("alice@example.com", text)]
    mail.waits(attempt=2)
    assert mail.event(attempt=2) == 0
    assert mail.sent() == [("alice@example.com", text)] * 2


@pytest.mark.parametrize(("status", "attempt"), [("PAID", 1), ("PAYMENT_DECLINED", 1), ("REQUIRES_ACTION", 2)])
def test_who_is_no_longer_waited_for_gets_no_mail(mail: Mail, status: str, attempt: int) -> None:
    """They have confirmed, or it is another attempt that waits: this event is an old one."""
    mail.waits(status=status, attempt=attempt)
    assert (mail.event(), mail.sent()) == (0, [])


def test_an_order_that_is_behind_gets_its_mail_later(mail: Mail) -> None:
    """Its message stays in the queue until the order has received the same event."""
    mail.waits(status="PENDING")
    assert (mail.event(), mail.sent()) == (1, [])
    mail.waits()
    assert (mail.deliver(), len(mail.sent())) == (0, 1)


def test_the_address_is_the_user_pools(mail: Mail, monkeypatch: pytest.MonkeyPatch) -> None:
    """The customer is the subject of the user's tokens."""
    monkeypatch.setenv("USER_POOL", "us-east-1_a")
    # Checks names and types of the request and the response: moto's Cognito needs a package more.
    cognito = Stubber(mail.module.cognito)
    attributes = [{"Name": "sub", "Value": "0f1e"}, {"Name": "email", "Value": "bob@example.com"}]
    response = {"Username": "0f1e", "UserAttributes": attributes}
    cognito.add_response("admin_get_user", response, {"UserPoolId": "us-east-1_a", "Username": "0f1e"})
    mail.waits(customer="0f1e")
    with cognito:
        assert mail.event() == 0
    assert [to for to, _ in mail.sent()] == ["bob@example.com"]


def test_each_output_that_the_guide_asks_for_exists() -> None:
    """And each parameter that it gives."""
    guide = (PROJECT / "docs/guides/react.md").read_text()
    asked = set(re.findall(r"\$\(output (\w+)\)", guide))
    assert asked == {"PaymentEventsTopicArn", "OrdersTableName", "UserPoolId"}
    assert asked <= load_template()["Outputs"].keys()
    given = set(re.findall(r"([A-Z]\w+)=", " ".join(re.findall(r"(?ms)^sam deploy.*?^```", guide))))
    assert given == load_template("docs/guides/react/template.yaml")["Parameters"].keys()
