"""republish: what waits for an outcome is published again, and nothing else. The tables are moto's."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from pydantic import Field, TypeAdapter

from onecharge.contract.events import CancelRequestedEvent, OrderPlacedEvent, RefundRequestedEvent
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import to_item
from onecharge.runtime.topics import OrderServiceEvent, Topic
from publish_events.app import Publisher
from publish_events.mapping import Tables
from republish.app import WAITING_STATUSES
from republish.republish import RepublishCheckpoint, RepublishOrders
from republish.waiting import (
    DAY_SECONDS,
    FIRST_WAIT_SECONDS,
    Source,
    WaitingOrders,
    WaitingRefunds,
    republications_due,
)
from testing.harness import Log, create_table, load_template
from testing.silent import SILENT

T0 = 1_800_000_000
HOUR = 3600
EVERY_SECONDS = 900
"""The schedule in template.yaml."""


ORDER_EVENT: TypeAdapter[OrderServiceEvent] = TypeAdapter(
    Annotated[OrderPlacedEvent | CancelRequestedEvent | RefundRequestedEvent, Field(discriminator="type")]
)


class Sns:
    """PublishBatch, which takes everything, or refuses the orders that the test names."""

    def __init__(self) -> None:
        self.published: list[OrderServiceEvent] = []
        self.refuses: Callable[[OrderServiceEvent], bool] = lambda event: False
        self.sender_fault = self.is_down = False

    def publish_batch(self, *, TopicArn: str, PublishBatchRequestEntries: list[dict[str, Any]]) -> dict[str, Any]:
        if self.is_down:
            raise EndpointConnectionError(endpoint_url="https://sns")
        answer: dict[str, Any] = {"Successful": [], "Failed": []}
        for entry in PublishBatchRequestEntries:
            event = ORDER_EVENT.validate_json(entry["Message"])
            if self.refuses(event):
                answer["Failed"].append({"Id": entry["Id"], "Code": "Refused", "SenderFault": self.sender_fault})
            else:
                self.published.append(event)
                answer["Successful"].append({"Id": entry["Id"], "MessageId": "m"})
        return answer


def order_id(number: int) -> str:
    return f"ord_{number:032x}"


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@dataclass
class Shop:
    """Orders and their refunds, a topic, and a clock that the test sets."""

    log: Log
    now: float = T0
    pages_left: int = 10**6
    sns: Sns = field(default_factory=Sns)
    counted: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.dynamodb: Any = boto3.client("dynamodb")
        create_table(self.dynamodb, "orders", "OrdersTable")
        create_table(self.dynamodb, "order-refunds", "OrderRefundsTable")
        create_table(self.dynamodb, "republication", "RepublicationTable")
        self.topic = Topic(self.sns, "orders-topic", SILENT, SILENT)  # type: ignore[arg-type]  # The one method.

    def place(self, number: int = 1, **changes: Any) -> dict[str, Any]:
        """Store an order now; gives the stream's record of it."""
        item = to_item(
            {
                "order_id": order_id(number),
                "status": "PENDING",
                "attempt": 1,
                "customer_id": "cus_1",
                "amount_minor": 1099,
                "currency": "EUR",
                "payment_method": "pm_card_visa",
                "placed_at": at(self.now),
                "correlation_id": "c",
                **changes,
            }
        )
        self.dynamodb.put_item(TableName="orders", Item=item)
        return {
            "eventName": "INSERT",
            "eventSourceARN": "arn:aws:dynamodb:us-east-1:1:table/orders/stream/2026",
            "dynamodb": {"Keys": {"order_id": item["order_id"]}, "NewImage": item},
        }

    def request_refund(self, number: int = 1, **changes: Any) -> None:
        """Store a refund of the order now."""
        values = {
            "order_id": order_id(number),
            "refund_id": f"rfd_{number:032x}",
            "status": "PENDING",
            "attempt": 1,
            "amount_minor": 1099,
            "currency": "EUR",
            "requested_at": at(self.now),
            "correlation_id": "c",
        }
        self.dynamodb.put_item(TableName="order-refunds", Item=to_item({**values, **changes}))

    @property
    def sources(self) -> list[Source]:
        orders = [WaitingOrders(self.dynamodb, "orders", status) for status in WAITING_STATUSES]
        return [*orders, WaitingRefunds(self.dynamodb, "order-refunds")]

    def republish(self, *, seconds_later: float = 0) -> list[int]:
        """One run, so much later; gives the orders that it published."""
        self.now += seconds_later
        before = len(self.sns.published)
        RepublishOrders(
            sources=self.sources,
            topic=self.topic,
            checkpoints=CheckpointStore(self.dynamodb, "republication", RepublishCheckpoint),
            clock=lambda: self.now,
            has_time=self._has_time,
            logger=self.log.logger,
            count=lambda name: self.counted.update([name]),
        )()
        return [int(event.subject[4:], 16) for event in self.sns.published[before:]]

    def _has_time(self) -> bool:
        self.pages_left -= 1
        return self.pages_left >= 0

    def publish(self, record: dict[str, Any]) -> None:
        """What publish_events does with a record of the stream."""
        tables = Tables("orders", "order-refunds", "payments", "refunds")
        Publisher(tables, self.topic, self.topic, SILENT, SILENT).publish([record])


@pytest.fixture
def shop(aws: None, log: Log) -> Shop:
    return Shop(log)


def test_an_order_that_stayed_pending_is_published_again(shop: Shop) -> None:
    """As the very event that its stream record makes, and it is counted."""
    shop.publish(shop.place())
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS) == [1]
    by_the_stream, again = shop.sns.published
    assert by_the_stream == again
    assert shop.counted == {"Republished": 1}


def test_an_order_that_is_young_or_has_moved_is_left_alone(shop: Shop) -> None:
    """Whatever it has moved to."""
    statuses = ["PAID", "PAYMENT_DECLINED", "NEEDS_REVIEW", "CANCELED"]
    for number, status in enumerate(statuses, start=2):
        shop.place(number, status=status)
        shop.request_refund(number, status=["SUCCEEDED", "FAILED", "NEEDS_REVIEW", "SUCCEEDED"][number - 2])
    shop.now += FIRST_WAIT_SECONDS
    shop.place(1)
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS - 1) == []
    assert shop.republish(seconds_later=1) == [1]


def test_an_order_that_moves_while_the_index_lags_is_left_alone(shop: Shop) -> None:
    """What counts is the order as it is, read consistently."""
    shop.place()
    shop.now += FIRST_WAIT_SECONDS
    pending = shop.sources[0]
    [stale], _ = pending.page(until=shop.now, after=None, limit=1)
    shop.place(status="PAID", placed_at=at(T0))
    assert stale["order_id"] == order_id(1)
    assert pending.read(stale) is None


def test_a_later_attempt_counts_from_its_own_beginning(shop: Shop) -> None:
    """Its order was placed days ago, which is what the event says: the age of the order decides about a lookup."""
    began = T0 + 3 * DAY_SECONDS
    shop.place(attempt=2, attempt_placed_at=at(began), placed_at=at(T0))
    shop.now = began
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS - 1) == []
    assert shop.republish(seconds_later=1) == [1]
    [event] = shop.sns.published
    assert isinstance(event, OrderPlacedEvent)
    assert (event.id, event.data.attempt, event.data.placed_at.timestamp()) == (f"{order_id(1)}:2:placed", 2, T0)
    assert "Alarm" not in shop.counted


def test_an_order_is_published_again_ever_more_rarely(shop: Shop) -> None:
    """After 15 and 30 minutes, 1, 2, 4, 8 and 16 hours, then daily: an outage of Stripe's makes no flood."""
    shop.place()
    published = [(shop.now - T0) / HOUR for _ in range(3 * 96) if shop.republish(seconds_later=EVERY_SECONDS)]
    assert published == [0.25, 0.5, 1, 2, 4, 8, 16, 24, 48, 72]


def test_the_schedule_is_the_tests() -> None:
    """Every 15 minutes, in template.yaml too."""
    events = load_template()["Resources"]["RepublishFunction"]["Properties"]["Events"]
    assert [event["Properties"]["Schedule"] for event in events.values()] == [f"rate({EVERY_SECONDS // 60} minutes)"]


def test_republications_due_never_falls() -> None:
    """Nor rises by two at once, at any second of three days."""
    due = [republications_due(seconds) for seconds in range(-1000, 3 * DAY_SECONDS)]
    assert {later - earlier for earlier, later in pairwise(due)} == {0, 1}


def test_a_run_is_bounded_and_the_next_goes_on(shop: Shop) -> None:
    """Where it stopped, the oldest first; a round has an end, and another begins."""
    for number in range(250):
        shop.place(number, placed_at=at(T0 + number / 1000))
    shop.request_refund(250)
    runs = []
    for _ in range(7):
        shop.pages_left = 1
        runs.append(shop.republish(seconds_later=FIRST_WAIT_SECONDS + 1))
    # One page each: three of PENDING, one each of REQUIRES_ACTION, CANCELING and the refunds, and the next round.
    assert runs == [list(range(100)), list(range(100, 200)), list(range(200, 250)), [], [], [250], list(range(100))]


@pytest.mark.parametrize(("status", "event_id"), [("REQUIRES_ACTION", "placed"), ("CANCELING", "cancel_requested")])
def test_whatever_waits_is_asked_about_again(shop: Shop, status: str, event_id: str) -> None:
    """3-D Secure succeeded and that one stream record lost: the order's present attempt is published again."""
    shop.place(status=status, attempt=2, attempt_placed_at=at(T0))
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS - 1) == []
    assert shop.republish(seconds_later=1) == [1]
    [event] = shop.sns.published
    assert event.id == f"{order_id(1)}:2:{event_id}"
    shop.republish(seconds_later=DAY_SECONDS)
    assert shop.counted == {"Republished": 2, "WaitingForADay": 1, "Alarm": 1}


def test_a_cancellation_waits_since_it_was_asked_for(shop: Shop) -> None:
    """And not since its order was placed, which may be a year ago."""
    asked_at = T0 + 300 * DAY_SECONDS
    shop.place(status="CANCELING", cancel_requested_at=at(asked_at))
    shop.now = asked_at
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS - 1) == []
    assert shop.republish(seconds_later=1) == [1]
    assert "Alarm" not in shop.counted


def test_a_refund_that_stays_pending_is_asked_about_again(shop: Shop) -> None:
    """As the event that its stream record makes, ever more rarely, with an alarm after a day."""
    shop.request_refund()
    published = [(shop.now - T0) / HOUR for _ in range(2 * 96) if shop.republish(seconds_later=EVERY_SECONDS)]
    assert published == [0.25, 0.5, 1, 2, 4, 8, 16, 24, 48]
    assert {event.id for event in shop.sns.published} == {f"rfd_{1:032x}:requested"}
    assert shop.counted["Alarm"] == 96 + 1


def test_a_refund_that_can_be_no_event_blocks_no_other(shop: Shop) -> None:
    """It raises the alarm, in every round."""
    for number in (1, 2, 3):
        shop.request_refund(number, **({"amount_minor": -1} if number == 2 else {}))
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS) == [1, 3]
    assert shop.counted["Alarm"] == 1


def test_what_waits_for_a_day_raises_the_alarm(shop: Shop) -> None:
    """In every run; the line that says which appears with each publication, and says no more than ids."""
    shop.place()
    shop.republish(seconds_later=DAY_SECONDS - 1)
    assert "Alarm" not in shop.counted
    shop.republish(seconds_later=1)
    shop.republish(seconds_later=EVERY_SECONDS)
    assert (shop.counted["Alarm"], shop.counted["WaitingForADay"], shop.counted["Republished"]) == (2, 2, 2)
    [line] = [line for line in shop.log.lines if line["level"] == "ERROR"]
    assert (line["order_id"], line["attempt"], line["waiting_seconds"]) == (order_id(1), 1, DAY_SECONDS)


@pytest.mark.parametrize("spoiled", [{"amount_minor": -1}, {"attempt_placed_at": "yesterday"}, {"currency": "XXX"}])
def test_an_order_that_can_be_no_event_blocks_no_other(shop: Shop, spoiled: dict[str, Any]) -> None:
    """It raises the alarm, in every round."""
    for number in (1, 2, 3):
        shop.place(number, **(spoiled if number == 2 else {}))
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS) == [1, 3]
    assert shop.counted["Alarm"] == 1
    assert [line["order_id"] for line in shop.log.lines if line["level"] == "ERROR"] == [order_id(2)]


def test_what_sns_refuses_is_due_until_it_is_taken(shop: Shop) -> None:
    """Though its time to be published again is over by then."""
    shop.place()
    shop.sns.refuses = lambda event: True
    shop.republish(seconds_later=FIRST_WAIT_SECONDS)
    shop.sns.is_down = True
    shop.republish(seconds_later=60)
    assert shop.counted == {"RepublishInterrupted": 2}
    shop.sns.is_down, shop.sns.refuses = False, lambda event: False
    assert shop.republish(seconds_later=60) == [1]
    assert shop.republish(seconds_later=60) == []


def test_what_sns_refuses_permanently_blocks_no_other(shop: Shop) -> None:
    """It raises the alarm, and the round comes to its end."""
    for number in range(150):
        shop.place(number, placed_at=at(T0 + number / 1000))
    shop.sns.refuses, shop.sns.sender_fault = lambda event: event.subject == order_id(7), True
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS + 1) == [number for number in range(150) if number != 7]
    assert shop.counted == {"Republished": 149, "Alarm": 1}


def test_nothing_is_lost_though_the_stream_forgets(shop: Shop) -> None:
    """SNS refuses for more than a day, the stream gives the record up: the order is published all the same."""
    record = shop.place()
    shop.sns.is_down = True
    while shop.now < T0 + DAY_SECONDS + HOUR:
        with pytest.raises(EndpointConnectionError):
            shop.publish(record)
        assert shop.republish(seconds_later=EVERY_SECONDS) == []
    shop.sns.is_down = False
    assert shop.republish(seconds_later=EVERY_SECONDS) == [1]
    shop.republish(seconds_later=2 * DAY_SECONDS)
    shop.publish(record)
    assert len(shop.sns.published) == 3
    assert len({event.model_dump_json() for event in shop.sns.published}) == 1


def test_of_two_concurrent_runs_one_ends(shop: Shop) -> None:
    """It has published duplicates, which are harmless, and leaves the checkpoint to the other run."""
    shop.place()
    shop.now += FIRST_WAIT_SECONDS
    publish = shop.topic.client.publish_batch

    def another_run_meanwhile(**entries: Any) -> Any:
        shop.sns.publish_batch = publish  # type: ignore[assignment, method-assign]
        assert shop.republish() == [1]
        return publish(**entries)

    shop.sns.publish_batch = another_run_meanwhile  # type: ignore[method-assign]
    assert shop.republish() == [1, 1]
    assert shop.counted == {"Republished": 2, "ConcurrentRun": 1}
    assert shop.republish() == []
