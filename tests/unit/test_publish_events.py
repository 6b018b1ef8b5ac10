"""publish_events: what is stored is published as a CloudEvent, the same one every time, or Lambda retries."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any

import pytest

from onecharge.contract.events import (
    ORDER_SERVICE,
    PAYMENT_SERVICE,
    CancelRequestedEvent,
    Event,
    OrderPlacedEvent,
    PaymentOutcomeEvent,
)
from onecharge.contract.refunds import RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.runtime.alarms import Cause
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.topics import Topic
from publish_events import mapping
from publish_events.mapping import TABLES, UnknownTable
from publish_events.publish import NotPublished, Publisher
from tests.support.fake_sns import FakeSns
from tests.support.harness import Log, Sample, load_template

NAMES = {
    "ORDERS_TABLE": "orders",
    "PAYMENTS_TABLE": "payments",
    "ORDER_REFUNDS_TABLE": "order-refunds",
}
MAPPINGS = {NAMES[variable]: mapping for variable, mapping in TABLES.items()}
event_from_record = partial(mapping.event_from_record, mappings=MAPPINGS)

CHANGES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "cancel_requested": ("order_stored", {"status": "CANCELING", "cancel_requested_at": "2026-11-01T09:30:00+00:00"}),
    "payment_declined": ("payment_succeeded", {"state": "DECLINED", "reason": "insufficient_funds"}),
}
"""The sample that a change is made of, and what differs."""

REFUND_KEYS = {"order_id": "ord_" + "f" * 32, "refund_id": "rfd_" + "5" * 32}
REFUND = {
    **REFUND_KEYS,
    **{"attempt": 1, "amount_minor": 1000, "currency": "EUR", "correlation_id": "c", "status": "PENDING"},
    **{"waiting_shard": "7", "fingerprint": "f", "requested_at": "2026-11-01T10:00:00+00:00"},
}
"""The item of a refund that is requested."""


def record(sample: Sample, name: str) -> dict[str, Any]:
    """The stream's record of a change."""
    like, changes = CHANGES.get(name, ("order_stored" if name == "refund_stored" else name, {}))
    made: dict[str, Any] = sample(f"publish_events/{like}")["Records"][0]
    if name == "refund_stored":
        made["eventSourceARN"] = made["eventSourceARN"].replace("table/orders", "table/order-refunds")
        made["dynamodb"] |= {"Keys": to_item(REFUND_KEYS), "NewImage": to_item(REFUND)}
    made["dynamodb"]["NewImage"] |= to_item(changes)
    return made


def test_a_stored_order_is_an_order_placed(sample: Sample) -> None:
    """The same one every time, so that a consumer recognizes a duplicate: charge_order's sample shows it."""
    event = event_from_record(record(sample, "order_stored"))
    assert event == event_from_record(record(sample, "order_stored"))
    assert isinstance(event, OrderPlacedEvent)
    body = sample("charge_order/order_placed")["Records"][0]["body"]
    assert event == OrderPlacedEvent.model_validate_json(body)


def test_a_new_attempt_is_an_order_placed_too(sample: Sample) -> None:
    """With the new card; placed_at is the order's own, from which the age of the order counts."""
    again = {**record(sample, "order_stored"), "eventName": "MODIFY"}
    again["dynamodb"]["NewImage"] |= {
        "attempt": {"N": "2"},
        "payment_method": {"S": "pm_2"},
        "waiting_since": {"S": "2026-11-03T09:00:00+00:00"},
    }
    event = event_from_record(again)
    assert isinstance(event, OrderPlacedEvent)
    assert (event.data.attempt, event.data.payment_method) == (2, "pm_2")
    assert event.id.startswith(f"{event.subject}:2:placed:")
    assert event.data.placed_at.isoformat() == "2026-11-01T09:00:00+00:00"


def test_a_cancellation_is_published(sample: Sample) -> None:
    """With all that a payment of the order would have needed."""
    event = event_from_record(record(sample, "cancel_requested"))
    placed = event_from_record(record(sample, "order_stored"))
    assert isinstance(event, CancelRequestedEvent)
    assert isinstance(placed, OrderPlacedEvent)
    assert event.data.model_dump() == placed.data.model_dump()
    assert event.id.startswith(f"{placed.subject}:1:cancel_requested:")


@pytest.mark.parametrize("name", ["order_stored", "cancel_requested"])
def test_an_order_that_waits_again_is_another_event(sample: Sample, name: str) -> None:
    """With the same content under another id: under the first one, FIFO drops it within five minutes."""
    before, after = record(sample, name), record(sample, name)
    after["dynamodb"]["NewImage"] |= to_item({"waiting_since": "2026-11-01T09:01:00+00:00"})
    first, again = event_from_record(before), event_from_record(after)
    assert first is not None
    assert again is not None
    assert again.id != first.id
    assert again.data == first.data


def test_each_revision_of_a_payment_is_an_event(sample: Sample) -> None:
    """A dispute or a re-emitted outcome: another id, the same time, and what Stripe shows by now."""
    row = record(sample, "payment_succeeded")
    first = event_from_record(row)
    row["dynamodb"]["NewImage"] |= {
        "revision": {"N": "4"},
        "amount_refunded_minor": {"N": "100"},
        "dispute_status": {"S": "won"},
        "last_emitted_at": {"N": "1793600000"},
    }
    second = event_from_record(row)
    assert isinstance(first, PaymentOutcomeEvent)
    assert isinstance(second, PaymentOutcomeEvent)
    assert (first.id, second.id) == (f"{first.subject}:1:succeeded:3", f"{first.subject}:1:succeeded:4")
    assert (first.data.revision, second.data.revision) == (3, 4)
    assert (second.data.amount_refunded_minor, second.data.dispute_status) == (100, "won")
    assert first.time == second.time == datetime.fromtimestamp(1793523602, UTC)


@pytest.mark.parametrize(("state", "has_reason"), [("DECLINED", True), ("CANCELED", True), ("SUCCEEDED", False)])
def test_an_outcome_without_money_has_its_reason(sample: Sample, state: str, has_reason: bool) -> None:
    """And the order's correlation id, and the attempt's card."""
    row = record(sample, "payment_declined")
    row["dynamodb"]["NewImage"]["state"] = {"S": state}
    event = event_from_record(row)
    assert isinstance(event, PaymentOutcomeEvent)
    assert (event.type, event.correlationid) == (f"onecharge.payment.{state.lower()}", "JKJaXmPLvHcESHA=")
    assert event.data.reason == ("insufficient_funds" if has_reason else None)
    assert (event.data.payment_method, event.data.amount_refunded_minor) == ("pm_card_visa", None if has_reason else 0)


def test_the_streams_arn_names_the_table(sample: Sample) -> None:
    """No attribute of the item does: an order may have a `state`, a payment a `status`, either a `refund_id`."""
    order, payment = record(sample, "order_stored"), record(sample, "payment_succeeded")
    order["dynamodb"]["NewImage"] |= {"state": {"S": "SUCCEEDED"}, "refund_id": {"S": "x"}}
    payment["dynamodb"]["NewImage"] |= {"status": {"S": "PENDING"}, "refund_id": {"S": "x"}}
    assert isinstance(event_from_record(order), OrderPlacedEvent)
    assert isinstance(event_from_record(payment), PaymentOutcomeEvent)


def test_an_internal_change_is_not_published(sample: Sample) -> None:
    """A payment that has not ended, an item that expired."""
    pending = record(sample, "payment_succeeded")
    pending["dynamodb"]["NewImage"]["state"] = {"S": "PENDING"}
    del pending["dynamodb"]["NewImage"]["finalized_at"]
    expired = record(sample, "order_stored") | {"eventName": "REMOVE"}
    del expired["dynamodb"]["NewImage"]
    assert [event_from_record(each) for each in (pending, expired)] == [None] * 2


STREAMS: dict[str, tuple[str, str, type[StrEnum]]] = {
    "OrderStored": ("order_stored", "status", OrderStatus),
    "RefundStored": ("refund_stored", "status", RefundState),
    "PaymentFinalized": ("payment_succeeded", "state", PaymentState),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_the_filters_let_through_what_is_published(sample: Sample, stream: str) -> None:
    """Exactly that: what a filter drops is lost, and what it lets through for nothing costs an invocation."""
    name, attribute, states = STREAMS[stream]
    events = load_template()["Resources"]["PublishEventsFunction"]["Properties"]["Events"]
    filters = [json.loads(each["Pattern"]) for each in events[stream]["Properties"]["FilterCriteria"]["Filters"]]
    let_through = [state for each in filters for state in each["dynamodb"]["NewImage"][attribute]["S"]]
    row = record(sample, name)
    published = []
    for state in states:
        row["dynamodb"]["NewImage"][attribute] = {"S": state}
        if event_from_record(row) is not None:
            published.append(state)
    assert sorted(let_through) == sorted(published)


class Publish:
    """publish_events over the fake SNS, and what comes of the records."""

    def __init__(self, sample: Sample, log: Log) -> None:
        self.sample, self.log, self.sns, self.counted = sample, log, FakeSns(), list[str]()

    def __call__(self, *records: dict[str, Any]) -> None:
        count: Any = self.counted.append
        client: Any = self.sns
        topics = {
            service: Topic(client, name, self.log.logger, count)
            for service, name in ((ORDER_SERVICE, "orders-topic"), (PAYMENT_SERVICE, "payments-topic"))
        }
        Publisher(MAPPINGS, topics, self.log.logger, count).publish(records)

    @property
    def published(self) -> list[str]:
        """The last digits of the orders whose events SNS accepted."""
        return [event.subject[-1] for event in self.sns.published]

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [line for line in self.log.lines if line["level"] == "ERROR"]

    @property
    def skipped(self) -> list[tuple[str, str, str]]:
        """The records that were skipped, each with an alarm: table, last digit of the order, reason."""
        alarms = [each for each in self.counted if isinstance(each, Alarm) and each.cause is Cause.UNEXPECTED_ERROR]
        skips = [each for each in self.errors if each.get("cause") == Cause.UNEXPECTED_ERROR]
        assert len(alarms) == self.counted.count("RecordUnpublishable") == len(skips)
        return [(each["table"], each["order_id"][-1], each["error"]) for each in skips]


@pytest.fixture
def publish(sample: Sample, log: Log) -> Publish:
    return Publish(sample, log)


def order_of(number: int, sample: Sample, **changes: Any) -> dict[str, Any]:
    """The stream's record of another order."""
    stored = record(sample, "order_stored")
    order_id = {"order_id": {"S": f"ord_{number:032x}"}}
    stored["eventID"] = f"event-{number}"
    stored["dynamodb"]["Keys"] = order_id
    stored["dynamodb"]["NewImage"] |= {**order_id, **changes}
    return stored


def test_each_event_goes_to_its_topic_with_its_type_as_an_attribute(publish: Publish, sample: Sample) -> None:
    """Subscriptions filter on the attribute; the message is the CloudEvent."""
    stored = ("order_stored", "refund_stored", "payment_succeeded")
    publish(*(record(sample, name) for name in stored))
    assert [
        (topic, json.loads(entry["Message"])["type"], entry["MessageAttributes"]["event_type"]["StringValue"])
        for topic, entry in publish.sns.sent
    ] == [
        ("orders-topic", "onecharge.order.placed", "onecharge.order.placed"),
        ("orders-topic", "onecharge.refund.requested", "onecharge.refund.requested"),
        ("payments-topic", "onecharge.payment.succeeded", "onecharge.payment.succeeded"),
    ]


def test_a_large_batch_is_published_in_tens(publish: Publish, sample: Sample) -> None:
    """As many as PublishBatch accepts."""
    publish(*[record(sample, "order_stored")] * 25)
    assert len(publish.sns.published) == 25


UNPUBLISHABLE = {
    "an amount that cannot be charged": ({"amount_minor": {"N": "-1"}}, "ValidationError"),
    "a fraction": ({"amount_minor": {"N": "10.5"}}, "ValueError"),
    "a time that is none": ({"placed_at": {"S": "yesterday"}}, "ValidationError"),
    "another type": ({"placed_at": {"NULL": True}}, "ValidationError"),
    "no status": ({"status": {}}, "ValueError"),
}


@pytest.mark.parametrize(("spoiled", "reason"), UNPUBLISHABLE.values(), ids=UNPUBLISHABLE.keys())
def test_an_invalid_record_is_skipped(publish: Publish, sample: Sample, spoiled: dict[str, Any], reason: str) -> None:
    """With an alarm that names table, key and reason; the others are published, and the stream goes on."""
    publish(order_of(1, sample), order_of(2, sample, **spoiled), order_of(3, sample))
    assert (publish.published, publish.skipped) == (["1", "3"], [("orders", "2", reason)])


def test_a_skipped_refund_is_named_by_its_whole_key(publish: Publish, sample: Sample) -> None:
    """An order may have several."""
    spoiled = record(sample, "refund_stored")
    spoiled["dynamodb"]["NewImage"]["attempt"] = {"S": "two"}
    publish(spoiled)
    assert {name: publish.errors[0][name] for name in REFUND_KEYS} == REFUND_KEYS


def test_a_record_of_another_table_is_skipped(publish: Publish, sample: Sample) -> None:
    """Nothing is guessed from its attributes; the error names the table."""
    stray = order_of(1, sample)
    stray["eventSourceARN"] = stray["eventSourceARN"].replace("table/orders", "table/others")
    with pytest.raises(UnknownTable, match="others"):
        event_from_record(stray)
    publish(stray)
    assert publish.skipped == [("others", "1", "UnknownTable")]


@pytest.mark.parametrize("code", ["InvalidParameter", "ParameterValueInvalid", "ValidationException"])
def test_an_event_that_sns_can_never_accept_is_skipped(publish: Publish, sample: Sample, code: str) -> None:
    """It is this event's record, and no other's."""
    publish.sns.refuses, publish.sns.code = is_the_second, code
    publish(*(order_of(number, sample) for number in (1, 2, 3)))
    assert (publish.published, publish.skipped) == (["1", "3"], [("orders", "2", code)])


@pytest.mark.parametrize("code", ["Throttled", "InternalError", "KMSDisabled", "KMSAccessDenied", "AuthorizationError"])
def test_an_outage_skips_nothing(publish: Publish, sample: Sample, code: str) -> None:
    """PublishBatch responds 200 all the same. Whatever the cause, Lambda retries the batch, without limit."""
    publish.sns.refuses, publish.sns.code = is_the_second, code
    with pytest.raises(NotPublished, match=f"1 of 2 records: {code}"):
        publish(order_of(1, sample), order_of(2, sample))
    assert publish.skipped == []


def is_the_second(event: Event) -> bool:
    return event.subject == f"ord_{2:032x}"


def test_an_outage_of_one_topic_does_not_block_the_other(publish: Publish, sample: Sample) -> None:
    """A whole request that fails is retried with its batch, once the other topic has its events."""
    publish.sns.down = {"orders-topic"}
    with pytest.raises(NotPublished, match="1 of 2 records: EndpointConnectionError"):
        publish(record(sample, "order_stored"), record(sample, "payment_succeeded"))
    assert [topic for topic, _ in publish.sns.sent] == ["payments-topic"]


def test_an_invalid_record_does_not_end_the_retries_of_another(publish: Publish, sample: Sample) -> None:
    """The batch is delivered again until SNS has the other one."""
    records = [order_of(1, sample, amount_minor={"N": "-1"}), order_of(2, sample)]
    publish.sns.refuses = is_the_second
    for _ in range(2):
        with pytest.raises(NotPublished, match="1 of 2 records: Throttled"):
            publish(*records)
    publish.sns.refuses = lambda _: False
    publish(*records)
    assert publish.published == ["2"]
