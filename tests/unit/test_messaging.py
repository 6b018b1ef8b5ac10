"""FIFO topics and queues: the template holds what AWS asks of them, and what is sent fits to it."""

from typing import Any

import pytest
import yaml

from onecharge.contract.events import OrderPlacedEvent
from onecharge.payments.delivery import REEMIT_AFTER_SECONDS
from onecharge.runtime.topics import Topic
from republish.waiting import FIRST_WAIT_SECONDS
from testing.harness import PROJECT, Sample, load_intrinsics
from testing.silent import SILENT

TOPICS = {"OrderEventsTopic", "PaymentEventsTopic"}
QUEUES = {
    "PaymentsQueue",
    "PaymentsDlq",
    "SubscriptionsDlq",
    "OrderUpdatesQueue",
    "OrderUpdatesDlq",
    "RefundsQueue",
    "RefundsDlq",
}
_LEFT_OUT = object()


def resolved(messaging: str) -> dict[str, dict[str, Any]]:
    """The properties of each resource, with `!If` resolved as CloudFormation does for this value of Messaging."""

    template = load_intrinsics()
    assert template["Conditions"]["MessagingIsFifo"] == {"Equals": [{"Ref": "Messaging"}, "fifo"]}

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            if value.keys() == {"If"} and value["If"][0] == "MessagingIsFifo":
                return resolve(value["If"][1 if messaging == "fifo" else 2])
            if value == {"Ref": "AWS::NoValue"}:
                return _LEFT_OUT
            kept = {name: resolve(each) for name, each in value.items()}
            return {name: each for name, each in kept.items() if each is not _LEFT_OUT}
        return [resolve(each) for each in value] if isinstance(value, list) else value

    return {name: resolve(resource.get("Properties", {})) for name, resource in template["Resources"].items()}


def of_type(kind: str) -> set[str]:
    text = yaml.compose((PROJECT / "template.yaml").read_text(), yaml.SafeLoader)
    assert isinstance(text, yaml.MappingNode)
    [resources] = [value for key, value in text.value if key.value == "Resources"]
    types = {
        name.value: value.value
        for name, resource in resources.value
        for key, value in resource.value
        if key.value == "Type"
    }
    return {name for name, each in types.items() if each == kind}


@pytest.mark.parametrize("messaging", ["standard", "fifo"])
def test_every_topic_and_queue_is_of_the_chosen_type(messaging: str) -> None:
    """A FIFO topic keeps the order only towards FIFO queues, and the DLQ of a FIFO queue has to be FIFO.

    On a standard queue `FifoQueue` is absent: CloudFormation rejects `false`.
    """
    resources = resolved(messaging)
    kind = {"fifo": True} if messaging == "fifo" else {}
    assert of_type("AWS::SNS::Topic") == TOPICS
    assert of_type("AWS::SQS::Queue") == QUEUES
    for name in TOPICS:
        assert resources[name].get("FifoTopic") == kind.get("fifo")
    for name in QUEUES:
        assert resources[name].get("FifoQueue") == kind.get("fifo")
        assert resources[name].keys() - {"FifoQueue"} == resolved("standard")[name].keys()


def test_only_fifo_topics_have_a_name_in_the_template() -> None:
    """It has to end in `.fifo`. CloudFormation generates a standard topic's, so that the names of two stacks differ."""
    fifo, standard = resolved("fifo"), resolved("standard")
    names = [fifo[name]["TopicName"]["Sub"] for name in sorted(TOPICS)]
    assert names == ["${AWS::StackName}-order-events.fifo", "${AWS::StackName}-payment-events.fifo"]
    assert not any("TopicName" in standard[name] for name in TOPICS)


def test_fifo_deduplication_drops_nothing_that_is_published_again() -> None:
    """A republished order and an outcome that is emitted again keep their event ids, which are deduplication ids."""
    deduplication_interval_seconds = 300
    assert deduplication_interval_seconds < FIRST_WAIT_SECONDS
    assert deduplication_interval_seconds < REEMIT_AFTER_SECONDS


def test_standard_is_the_default() -> None:
    """A stack that is deployed without the parameter has standard queues and topics."""
    text = (PROJECT / "template.yaml").read_text()
    assert "  Messaging:\n    Type: String\n    Default: standard\n" in text


@pytest.mark.parametrize(
    ("arn", "fifo"),
    [
        ("arn:aws:sns:us-east-1:1:orders", {}),
        ("arn:aws:sns:us-east-1:1:orders.fifo", {"MessageGroupId": "{order}", "MessageDeduplicationId": "{event}"}),
    ],
)
def test_a_message_group_is_an_order_and_a_deduplication_id_an_event(
    sample: Sample, arn: str, fifo: dict[str, str]
) -> None:
    """On a FIFO topic; a standard topic gets neither."""
    event = OrderPlacedEvent.model_validate_json(sample("charge_order/order_placed")["Records"][0]["body"])
    sent: list[dict[str, Any]] = []

    class Sns:
        def publish_batch(self, **request: Any) -> dict[str, Any]:
            sent.extend(request["PublishBatchRequestEntries"])
            return {"Successful": [], "Failed": []}

    Topic(Sns(), arn, SILENT, SILENT).publish([event])  # type: ignore[arg-type]  # The one method.
    expected = {name: value.format(order=event.data.order_id, event=event.id) for name, value in fifo.items()}
    assert [
        {name: entry[name] for name in entry if name.startswith("MessageG") or "Dedup" in name} for entry in sent
    ] == [expected]
