"""publish_events: what is stored is published as a CloudEvent, the same one every time, or Lambda retries."""

import json
from enum import StrEnum
from typing import Any

import pytest

from onecharge.contract.events import ORDER_SERVICE, PAYMENT_SERVICE, CancelRequestedEvent, Event, OrderPlacedEvent
from onecharge.contract.refund_events import RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.runtime.alarms import Cause
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.topics import Topic
from publish_events.mapping import TABLES
from publish_events.publish import NotPublished, Publisher
from tests.support.fake_sns import FakeSns
from tests.support.harness import Log, Sample, load_template

NAMES = {"ORDERS_TABLE": "orders", "PAYMENTS_TABLE": "payments", "ORDER_REFUNDS_TABLE": "order-refunds"}
MAPPINGS = {NAMES[variable]: mapping for variable, mapping in TABLES.items()}
SAMPLES = {"orders": "order_stored", "order-refunds": "order_stored", "payments": "payment_succeeded"}
REFUND_KEYS = {"order_id": "ord_" + "f" * 32, "refund_id": "rfd_" + "5" * 32}
REFUND = {
    **REFUND_KEYS,
    **{"attempt": 1, "amount_minor": 1000, "currency": "EUR", "correlation_id": "c", "status": "PENDING"},
    **{"waiting_shard": "7", "fingerprint": "f", "requested_at": "2026-11-01T10:00:00+00:00"},
}
"""The item of a refund that is requested."""


class Stream:
    """The tables' streams, and publish_events over the fake SNS."""

    def __init__(self, sample: Sample, log: Log) -> None:
        self.sample, self.log, self.sns, self.counted = sample, log, FakeSns(), list[str]()

    def record(self, table: str = "orders", number: int | None = None, **changes: Any) -> dict[str, Any]:
        """The record of an item with these changes; of another order, if a number is given."""
        [made] = self.sample(f"publish_events/{SAMPLES[table]}")["Records"]
        made["eventSourceARN"] = f"arn:aws:dynamodb:us-east-1:123456789012:table/{table}/stream/2026"
        if table == "order-refunds":
            made["dynamodb"] |= {"Keys": to_item(REFUND_KEYS), "NewImage": to_item(REFUND)}
        if number is not None:
            made["dynamodb"]["Keys"] = to_item({"order_id": f"ord_{number:032x}"})
        made["dynamodb"]["NewImage"] |= made["dynamodb"]["Keys"] | to_item(changes)
        return dict(made)

    def publish(self, *records: dict[str, Any]) -> list[Event]:
        """The events that this batch has published."""
        count: Any = self.counted.append
        client: Any = self.sns
        topics = {ORDER_SERVICE: "orders-topic", PAYMENT_SERVICE: "payments-topic"}
        by_source = {source: Topic(client, name, self.log.logger, count) for source, name in topics.items()}
        before = len(self.sns.published)
        Publisher(MAPPINGS, by_source, self.log.logger, count).publish(records)
        return self.sns.published[before:]

    def event(self, table: str = "orders", **changes: Any) -> Any:
        """The one event of such a record; the same each time."""
        [event] = self.publish(self.record(table, **changes))
        assert self.publish(self.record(table, **changes)) == [event]
        return event

    @property
    def skipped(self) -> list[tuple[str, str, str]]:
        """The records that were skipped, each with an alarm: table, last digit of the order, reason."""
        alarms = [each for each in self.counted if isinstance(each, Alarm) and each.cause is Cause.UNEXPECTED_ERROR]
        skips = [line for line in self.log.lines if line.get("cause") == Cause.UNEXPECTED_ERROR]
        assert len(alarms) == len(skips)
        return [(each["table"], each["order_id"][-1], each["error"]) for each in skips]


@pytest.fixture
def stream(sample: Sample, log: Log) -> Stream:
    return Stream(sample, log)


# ---------------------------------------------------------------- which event

AGAIN, ASKED_AT = "2026-11-01T09:01:00+00:00", "2026-11-01T09:30:00+00:00"


def test_an_order_that_waits_is_a_request(stream: Stream, sample: Sample) -> None:
    """charge_order's sample shows it; a cancellation has the same data. While it waits again it is another event: under
    the first id, FIFO drops it within five minutes. A new attempt has its card; placed_at is always the order's own."""
    placed = stream.event()
    body = sample("charge_order/order_placed")["Records"][0]["body"]
    assert placed == OrderPlacedEvent.model_validate_json(body)
    canceled = stream.event(status="CANCELING", cancel_requested_at=ASKED_AT)
    assert (type(canceled), canceled.data) == (CancelRequestedEvent, placed.data)
    assert canceled.id.startswith(f"{placed.subject}:1:cancel_requested:")
    for first, changes in ((placed, {}), (canceled, {"status": "CANCELING"})):
        again = stream.event(waiting_since=AGAIN, **changes)
        assert (again.data, again.id == first.id) == (first.data, False)
    second = stream.event(attempt=2, payment_method="pm_2", waiting_since=AGAIN)
    assert (second.data.attempt, second.data.payment_method) == (2, "pm_2")
    assert (second.data.placed_at, second.id.split(":")[1:3]) == (placed.data.placed_at, ["2", "placed"])


@pytest.mark.parametrize("state", [*PaymentState][1:])
def test_each_revision_of_an_outcome_is_an_event(stream: Stream, state: PaymentState) -> None:
    """With its own id and the time of the outcome. Refunds and dispute come with a success alone, the reason with an
    outcome without money; the attempt's card and the order's correlation id with each."""
    facts = {"reason": "insufficient_funds", "amount_refunded_minor": 100, "dispute_status": "won"}
    first, second = (stream.event("payments", state=state, revision=number, **facts) for number in (3, 4))
    assert (first.type, first.correlationid) == (f"onecharge.payment.{state.lower()}", "JKJaXmPLvHcESHA=")
    assert (first.id, second.id) == tuple(f"{first.subject}:1:{state.lower()}:{number}" for number in (3, 4))
    assert (first.data.revision, second.data.revision, first.time.timestamp()) == (3, 4, 1793523602)
    assert first.time == second.time
    is_paid = state is PaymentState.SUCCEEDED
    has_reason = state in (PaymentState.DECLINED, PaymentState.CANCELED)
    assert first.data.reason == (facts["reason"] if has_reason else None)
    assert (first.data.amount_refunded_minor, first.data.dispute_status) == ((100, "won") if is_paid else (None, None))
    assert first.data.payment_method == "pm_card_visa"


STREAMS: dict[str, tuple[str, str, type[StrEnum]]] = {
    "OrderStored": ("orders", "status", OrderStatus),
    "RefundStored": ("order-refunds", "status", RefundState),
    "PaymentFinalized": ("payments", "state", PaymentState),
}


@pytest.mark.parametrize("name", STREAMS)
def test_the_filters_let_through_what_is_published(stream: Stream, name: str) -> None:
    """Exactly that: what a filter drops is lost, and what it lets through for nothing costs an invocation. The ARN
    names the table, and no attribute does; an item that expired is not published."""
    table, attribute, states = STREAMS[name]
    events = load_template()["Resources"]["PublishEventsFunction"]["Properties"]["Events"]
    filters = [json.loads(each["Pattern"]) for each in events[name]["Properties"]["FilterCriteria"]["Filters"]]
    let_through = [state for each in filters for state in each["dynamodb"]["NewImage"][attribute]["S"]]
    others: dict[str, Any] = {"state": "SUCCEEDED", "status": "PENDING", "refund_id": REFUND_KEYS["refund_id"]}
    records = {state: stream.record(table, **{**others, attribute: state}) for state in states}
    assert sorted(let_through) == sorted(state for state, record in records.items() if stream.publish(record))
    expired = stream.record(table)
    del expired["dynamodb"]["NewImage"]
    assert (stream.publish(expired), stream.skipped) == ([], [])


# ---------------------------------------------------------------- SNS


def test_each_event_goes_to_its_topic_in_tens(stream: Stream) -> None:
    """As many as PublishBatch accepts. Subscriptions filter on the type, which is an attribute, too."""
    stream.publish(*[stream.record(table) for table in MAPPINGS for _ in range(25)])
    sent = [(topic, entry["MessageAttributes"]["event_type"]["StringValue"]) for topic, entry in stream.sns.sent]
    assert {each: sent.count(each) for each in sent} == {
        ("orders-topic", "onecharge.order.placed"): 25,
        ("orders-topic", "onecharge.refund.requested"): 25,
        ("payments-topic", "onecharge.payment.succeeded"): 25,
    }


def test_an_invalid_record_is_skipped(stream: Stream) -> None:
    """With an alarm that names table, key and reason; the others are published."""
    records = [stream.record(number=number) for number in (1, 2, 3, 4)]
    records[1]["dynamodb"]["NewImage"]["amount_minor"] = {"N": "10.5"}
    records[3]["dynamodb"]["NewImage"]["placed_at"] = {"S": "yesterday"}
    assert [event.subject[-1] for event in stream.publish(*records)] == ["1", "3"]
    assert stream.skipped == [("orders", "2", "ValueError"), ("orders", "4", "ValidationError")]


def test_a_skipped_record_is_named_by_its_whole_key(stream: Stream) -> None:
    """An order may have several refunds; of another table's record nothing is guessed."""
    stray = stream.record()
    stray["eventSourceARN"] = stray["eventSourceARN"].replace("table/orders", "table/others")
    assert stream.publish(stream.record("order-refunds", attempt="two"), stray) == []
    assert stream.skipped == [("order-refunds", "f", "ValidationError"), ("others", "6", "KeyError")]
    assert {name: stream.log.lines[0][name] for name in REFUND_KEYS} == REFUND_KEYS


PERMANENT = ("InvalidParameter", "ParameterValueInvalid", "ValidationException")
TRANSIENT = ("Throttled", "KMSAccessDenied", "AuthorizationError")


@pytest.mark.parametrize("code", [*PERMANENT, *TRANSIENT])
def test_what_sns_refuses_is_skipped_or_retried(stream: Stream, code: str) -> None:
    """PublishBatch responds 200 all the same. If SNS blames the message, it is skipped; whatever else the cause, Lambda
    retries the batch, without limit. The others are published."""
    stream.sns.refuses = lambda event: code if event.subject.endswith("2") else None
    records = [stream.record(number=number) for number in (1, 2, 3)]
    if code in PERMANENT:
        assert [event.subject[-1] for event in stream.publish(*records)] == ["1", "3"]
        assert stream.skipped == [("orders", "2", code)]
        return
    with pytest.raises(NotPublished, match=f"1 of 3 records: {code}"):
        stream.publish(*records)
    assert (len(stream.sns.published), stream.skipped) == (2, [])


def test_an_outage_of_one_topic_does_not_block_the_other(stream: Stream) -> None:
    """A whole request that fails is retried with its batch, once the other topic has its events."""
    stream.sns.down = {"orders-topic"}
    with pytest.raises(NotPublished, match="1 of 2 records: EndpointConnectionError"):
        stream.publish(stream.record(), stream.record("payments"))
    assert [topic for topic, _ in stream.sns.sent] == ["payments-topic"]
