"""FIFO topics and queues: the template holds what AWS asks of them, and what is sent fits to it."""

from typing import Any

import pytest

from onecharge.contract.events import CancelRequestedEvent, Event, OrderPlacedEvent
from onecharge.runtime.topics import Topic
from tests.support.fake_sns import FakeSns
from tests.support.harness import Sample, load_intrinsics
from tests.support.silent import SILENT

TEMPLATE = load_intrinsics()
KINDS = ("AWS::SNS::Topic", "AWS::SQS::Queue")
KEPT_TOGETHER_BY = ("MessageGroupId", "MessageDeduplicationId")
IS_FIFO = {"FifoTopic", "FifoQueue", "TopicName"}


def resolved(*, fifo: bool) -> dict[str, dict[str, Any]]:
    """The properties of each topic and queue, with `!If [MessagingIsFifo, …]` resolved."""

    def resolve(value: Any) -> Any:
        if isinstance(value, dict) and value.get("If", [""])[0] == "MessagingIsFifo":
            return resolve(value["If"][1 if fifo else 2])
        if isinstance(value, dict):
            kept = {name: resolve(each) for name, each in value.items()}
            return {name: each for name, each in kept.items() if each != {"Ref": "AWS::NoValue"}}
        return [resolve(each) for each in value] if isinstance(value, list) else value

    resources = TEMPLATE["Resources"].items()
    return {name: resolve(each["Properties"]) for name, each in resources if each["Type"] in KINDS}


def test_every_topic_and_queue_is_of_the_chosen_type() -> None:
    """Standard, unless the parameter says FIFO. A FIFO topic keeps the order only towards FIFO queues, and the DLQ of a
    FIFO queue has to be FIFO.

    On a standard one the property is absent: CloudFormation rejects `false`. The name of a FIFO topic has to end in
    `.fifo`; CloudFormation generates a standard topic's, so that the names of two stacks differ.
    """
    assert TEMPLATE["Parameters"]["Messaging"]["Default"] == "standard"
    assert TEMPLATE["Conditions"]["MessagingIsFifo"] == {"Equals": [{"Ref": "Messaging"}, "fifo"]}
    standard, fifo = resolved(fifo=False), resolved(fifo=True)
    topics = {"OrderEventsTopic": "order-events", "PaymentEventsTopic": "payment-events"}
    assert {name for name in standard if name.endswith("Topic")} == topics.keys()
    for name, each in fifo.items():
        assert not standard[name].keys() & IS_FIFO
        assert each.keys() - IS_FIFO == standard[name].keys()
        assert each.get("FifoTopic" if name in topics else "FifoQueue") is True
        if name in topics:
            assert each["TopicName"] == {"Sub": f"${{AWS::StackName}}-{topics[name]}.fifo"}


@pytest.mark.parametrize("fifo", [False, True])
def test_a_message_group_is_an_order_and_a_deduplication_id_an_event(sample: Sample, fifo: bool) -> None:
    """On a FIFO topic; a standard topic gets neither. A cancellation has a group of its own: in the order's, it would
    come only after the charge that backs off, and that it is to prevent."""
    placed = OrderPlacedEvent.model_validate_json(sample("charge_order/order_placed")["Records"][0]["body"])
    cancel = CancelRequestedEvent.of(placed.data, correlation_id="c")
    for event, group in ((placed, placed.subject), (cancel, f"{placed.subject}:cancel")):
        given = {"MessageGroupId": group, "MessageDeduplicationId": event.id} if fifo else {}
        entry = sent(event, fifo=fifo)
        assert {name: each for name, each in entry.items() if name in KEPT_TOGETHER_BY} == given


def sent(event: Event, *, fifo: bool) -> dict[str, Any]:
    """The entry that the event is published as."""
    sns = FakeSns()
    topic = Topic(sns, f"arn:aws:sns:us-east-1:1:orders{'.fifo' * fifo}", SILENT, SILENT)  # type: ignore[arg-type]
    topic.publish([event])
    [(_, entry)] = sns.sent
    return entry
