"""template.yaml: which events reach which queue, and where what cannot be delivered goes."""

from onecharge.contract.cancellations import CANCEL_REQUESTED
from onecharge.contract.events import EventType
from testing.harness import load_template

RESOURCES = load_template()["Resources"]


def test_the_payments_queue_gets_orders_and_cancellations() -> None:
    """And nothing else: what else the order service asks for has a queue of its own."""
    wanted = [EventType.ORDER_PLACED, CANCEL_REQUESTED]
    assert RESOURCES["PaymentsSubscription"]["Properties"]["FilterPolicy"] == {"event_type": wanted}


def test_a_failed_batch_of_a_stream_is_split_and_then_given_up_to_a_dlq() -> None:
    """Every stream of publish_events, so that one record does not block its shard until it expires."""
    for event in RESOURCES["PublishEventsFunction"]["Properties"]["Events"].values():
        destination = event["Properties"]["DestinationConfig"]["OnFailure"]["Destination"]
        assert destination == "GetAtt PublishEventsDlq.Arn"
        assert event["Properties"]["BisectBatchOnFunctionError"] is True
