"""Messaging: standard or fifo. The template holds what AWS asks of each, and what is sent fits to it."""

from typing import Any

import pytest
import yaml

from charge_order.charge import REEMIT_AFTER_SECONDS
from onecharge.contract.events import EventType, OrderPlacedEvent
from onecharge.runtime.topics import Topic
from republish.waiting import FIRST_WAIT_SECONDS
from testing.harness import PROJECT, Sample
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
STREAM_DLQ = "PublishEventsDlq"
_LEFT_OUT = object()


def resolved(messaging: str) -> dict[str, dict[str, Any]]:
    """The properties of each resource, with `!If` decided as CloudFormation decides it."""

    class Loader(yaml.SafeLoader):
        pass

    def construct(loader: yaml.SafeLoader, suffix: str, node: Any) -> Any:
        if isinstance(node, yaml.SequenceNode):
            return {suffix: loader.construct_sequence(node, deep=True)}
        if isinstance(node, yaml.MappingNode):
            return {suffix: loader.construct_mapping(node, deep=True)}
        return {suffix: node.value}

    Loader.add_multi_constructor("!", construct)
    template = yaml.load((PROJECT / "template.yaml").read_text(), Loader)  # noqa: S506  # A SafeLoader's child.
    assert template["Conditions"]["MessagingIsFifo"] == {"Equals": [{"Ref": "Messaging"}, "fifo"]}

    def decide(value: Any) -> Any:
        if isinstance(value, dict):
            if value.keys() == {"If"} and value["If"][0] == "MessagingIsFifo":
                return decide(value["If"][1 if messaging == "fifo" else 2])
            if value == {"Ref": "AWS::NoValue"}:
                return _LEFT_OUT
            decided = {name: decide(each) for name, each in value.items()}
            return {name: each for name, each in decided.items() if each is not _LEFT_OUT}
        return [decide(each) for each in value] if isinstance(value, list) else value

    return {name: decide(resource.get("Properties", {})) for name, resource in template["Resources"].items()}


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
def test_every_topic_and_queue_is_of_the_chosen_kind(messaging: str) -> None:
    """A topic that is FIFO delivers in order only to FIFO queues, and a FIFO queue has a FIFO DLQ.

    On a standard queue the property must be absent: CloudFormation refuses `false`.
    """
    resources = resolved(messaging)
    kind = {"fifo": True} if messaging == "fifo" else {}
    assert of_type("AWS::SNS::Topic") == TOPICS
    assert of_type("AWS::SQS::Queue") == QUEUES | {STREAM_DLQ}
    for name in TOPICS:
        assert resources[name].get("FifoTopic") == kind.get("fifo")
    for name in QUEUES:
        assert resources[name].get("FifoQueue") == kind.get("fifo")
        assert resources[name].keys() - {"FifoQueue"} == resolved("standard")[name].keys()


@pytest.mark.parametrize("messaging", ["standard", "fifo"])
def test_the_streams_dlq_is_a_standard_queue(messaging: str) -> None:
    """Lambda sends what it gives up of a stream to no other."""
    resources = resolved(messaging)
    assert "FifoQueue" not in resources[STREAM_DLQ]
    for event in resources["PublishEventsFunction"]["Events"].values():
        destination = event["Properties"]["DestinationConfig"]["OnFailure"]["Destination"]
        assert destination == {"GetAtt": f"{STREAM_DLQ}.Arn"}
        assert event["Properties"]["BisectBatchOnFunctionError"] is True


def test_a_fifo_topic_has_a_name_that_ends_so() -> None:
    """CloudFormation generates none; a standard topic's it does, so that two stacks never want the same."""
    fifo, standard = resolved("fifo"), resolved("standard")
    names = [fifo[name]["TopicName"]["Sub"] for name in sorted(TOPICS)]
    assert names == ["${AWS::StackName}-order-events.fifo", "${AWS::StackName}-payment-events.fifo"]
    assert not any("TopicName" in standard[name] for name in TOPICS)


def test_the_payments_queue_gets_orders_and_cancellations() -> None:
    """And nothing else; refunds have a queue of their own."""
    wanted = [EventType.ORDER_PLACED, EventType.ORDER_CANCEL_REQUESTED]
    assert resolved("standard")["PaymentsSubscription"]["FilterPolicy"] == {"event_type": wanted}


def test_the_deduplication_of_five_minutes_swallows_nothing_that_is_told_again() -> None:
    """A republished order, and an outcome that is emitted again, have the ids that they had before."""
    five_minutes = 300
    assert five_minutes < FIRST_WAIT_SECONDS
    assert five_minutes < REEMIT_AFTER_SECONDS


def test_standard_is_what_nobody_has_to_choose() -> None:
    """A stack that says nothing has standard queues."""
    text = (PROJECT / "template.yaml").read_text()
    assert "  Messaging:\n    Type: String\n    Default: standard\n" in text


@pytest.mark.parametrize(
    ("arn", "place"),
    [
        ("arn:aws:sns:us-east-1:1:orders", {}),
        ("arn:aws:sns:us-east-1:1:orders.fifo", {"MessageGroupId": "{order}", "MessageDeduplicationId": "{event}"}),
    ],
)
def test_a_fifo_topic_gets_the_order_as_group_and_the_event_as_deduplication_id(
    sample: Sample, arn: str, place: dict[str, str]
) -> None:
    """A standard topic gets neither."""
    event = OrderPlacedEvent.model_validate_json(sample("charge_order/order_placed")["Records"][0]["body"])
    sent: list[dict[str, Any]] = []

    class Sns:
        def publish_batch(self, **given: Any) -> dict[str, Any]:
            sent.extend(given["PublishBatchRequestEntries"])
            return {"Successful": [], "Failed": []}

    Topic(Sns(), arn, SILENT, SILENT).publish([event])  # type: ignore[arg-type]  # The one method.
    wanted = {name: value.format(order=event.data.order_id, event=event.id) for name, value in place.items()}
    assert [
        {name: entry[name] for name in entry if name.startswith("MessageG") or "Dedup" in name} for entry in sent
    ] == [wanted]
