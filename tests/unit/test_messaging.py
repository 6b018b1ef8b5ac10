"""FIFO topics and queues: the template holds what AWS asks of them, and what is sent fits to it."""

from typing import Any

import pytest

from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent
from onecharge.runtime.topics import Topic
from tests.support.fake_sns import FakeSns
from tests.support.harness import Sample, load_intrinsics
from tests.support.silent import SILENT


def test_every_topic_and_queue_is_of_the_chosen_type() -> None:
    """Standard, unless the parameter says FIFO. A FIFO topic keeps the order only towards FIFO queues, and the DLQ of a
    FIFO queue has to be FIFO.

    On a standard one the property is absent: CloudFormation rejects `false`. The name of a FIFO topic has to end in
    `.fifo`; CloudFormation generates a standard topic's, so that the names of two stacks differ.
    """
    template = load_intrinsics()
    assert template["Parameters"]["Messaging"]["Default"] == "standard"
    assert template["Conditions"]["MessagingIsFifo"] == {"Equals": [{"Ref": "Messaging"}, "fifo"]}
    nothing, names = {"Ref": "AWS::NoValue"}, dict[str, Any]()
    for name, resource in template["Resources"].items():
        if resource["Type"] in ("AWS::SNS::Topic", "AWS::SQS::Queue"):
            is_topic, properties = resource["Type"] == "AWS::SNS::Topic", resource["Properties"]
            assert properties["FifoTopic" if is_topic else "FifoQueue"] == {"If": ["MessagingIsFifo", True, nothing]}
            names |= {name: properties["TopicName"]} if is_topic else {}
    assert names == {
        name: {"If": ["MessagingIsFifo", {"Sub": f"${{AWS::StackName}}-{topic}.fifo"}, nothing]}
        for name, topic in {"OrderEventsTopic": "order-events", "PaymentEventsTopic": "payment-events"}.items()
    }


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_a_message_group_is_an_order_and_a_deduplication_id_an_event(sample: Sample, suffix: str) -> None:
    """On a FIFO topic; a standard topic gets neither. A cancellation has a group of its own: in the order's, it would
    come only after the charge that backs off, and that it is to prevent."""
    placed = OrderPlacedEvent.model_validate_json(sample("charge_order/order_placed")["Records"][0]["body"])
    cancel = CancelRequestedEvent.of(placed.data, correlation_id="c")
    sns: Any = FakeSns()
    Topic(sns, f"arn:aws:sns:us-east-1:1:orders{suffix}", SILENT, SILENT).publish([placed, cancel])
    together = [(entry.get("MessageGroupId"), entry.get("MessageDeduplicationId")) for _, entry in sns.sent]
    groups = [(placed.subject, placed.id), (f"{placed.subject}:cancel", cancel.id)]
    assert together == (groups if suffix else [(None, None)] * 2)
