"""FIFO topics and queues: the template holds what AWS asks of them, and what is sent fits to it."""

from typing import Any

import pytest

from onecharge.contract.events import CancelRequestedEvent, Event, OrderPlacedEvent
from onecharge.orders.republication import FIRST_WAIT_SECONDS
from onecharge.payments.deliveries import REEMIT_AFTER_SECONDS
from onecharge.runtime.topics import Topic
from tests.support.fake_sns import FakeSns
from tests.support.harness import Sample, load_intrinsics
from tests.support.silent import SILENT

TEMPLATE = load_intrinsics()
_LEFT_OUT = object()


def resolved(messaging: str) -> dict[str, dict[str, Any]]:
    """The properties of each topic and queue, with `!If` resolved for this value of Messaging."""
    assert TEMPLATE["Conditions"]["MessagingIsFifo"] == {"Equals": [{"Ref": "Messaging"}, "fifo"]}

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            if value.keys() == {"If"} and value["If"][0] == "MessagingIsFifo":
                return resolve(value["If"][1 if messaging == "fifo" else 2])
            if value == {"Ref": "AWS::NoValue"}:
                return _LEFT_OUT
            kept = {name: resolve(each) for name, each in value.items()}
            return {name: each for name, each in kept.items() if each is not _LEFT_OUT}
        return [resolve(each) for each in value] if isinstance(value, list) else value

    kinds = ("AWS::SNS::Topic", "AWS::SQS::Queue")
    resources = TEMPLATE["Resources"].items()
    return {name: resolve(each["Properties"]) for name, each in resources if each["Type"] in kinds}


def test_every_topic_and_queue_is_of_the_chosen_type() -> None:
    """A FIFO topic keeps the order only towards FIFO queues, and the DLQ of a FIFO queue has to be FIFO.

    On a standard one the property is absent: CloudFormation rejects `false`. The name of a FIFO topic has to end in
    `.fifo`; CloudFormation generates a standard topic's, so that the names of two stacks differ.
    """
    standard, fifo = resolved("standard"), resolved("fifo")
    assert [name for name, each in standard.items() if each.keys() & {"FifoTopic", "FifoQueue", "TopicName"}] == []
    queues = {name for name in fifo if not name.endswith("Topic")}
    assert [name for name in queues if fifo[name].get("FifoQueue") is not True] == []
    topics = {name: each for name, each in fifo.items() if name not in queues}
    assert [each["FifoTopic"] for each in topics.values()] == [True, True]
    assert [each["TopicName"]["Sub"] for each in topics.values()] == [
        "${AWS::StackName}-order-events.fifo",
        "${AWS::StackName}-payment-events.fifo",
    ]
    for name, each in fifo.items():
        assert each.keys() - {"FifoTopic", "FifoQueue", "TopicName"} == standard[name].keys()


def test_fifo_deduplication_drops_nothing_that_is_published_again() -> None:
    """A republished order and an outcome that is emitted again keep their event ids, which are deduplication ids."""
    deduplication_interval_seconds = 300
    assert deduplication_interval_seconds < FIRST_WAIT_SECONDS
    assert deduplication_interval_seconds < REEMIT_AFTER_SECONDS


def test_standard_is_the_default() -> None:
    """A stack that is deployed without the parameter has standard queues and topics."""
    assert TEMPLATE["Parameters"]["Messaging"]["Default"] == "standard"


KEPT_TOGETHER_BY = ("MessageGroupId", "MessageDeduplicationId")


def sent(event: Event, arn: str) -> dict[str, Any]:
    """The entry that the event is published as."""
    sns = FakeSns()
    Topic(sns, arn, SILENT, SILENT).publish([event])  # type: ignore[arg-type]  # The one method.
    [(_, entry)] = sns.sent
    return entry


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
    expected = {name: value.format(order=event.data.order_id, event=event.id) for name, value in fifo.items()}
    assert {name: value for name, value in sent(event, arn).items() if name in KEPT_TOGETHER_BY} == expected


def test_a_cancellation_does_not_wait_for_a_charge_that_backs_off(sample: Sample) -> None:
    """It has a group of its own: in the order's, it would come only after the charge that it is to prevent."""
    placed = OrderPlacedEvent.model_validate_json(sample("charge_order/order_placed")["Records"][0]["body"])
    cancel = CancelRequestedEvent.of(placed.data, correlation_id="c")
    groups = {sent(event, "arn:aws:sns:us-east-1:1:orders.fifo")["MessageGroupId"] for event in (placed, cancel)}
    assert len(groups) == 2
