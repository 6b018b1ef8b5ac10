"""republish: publishes again what waits for an outcome, and nothing else. The tables are in memory."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import batched, pairwise
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from onecharge.contract.events import ORDER_SERVICE, CancelRequestedEvent, OrderPlacedEvent
from onecharge.orders.republication import DAY_SECONDS, FIRST_WAIT_SECONDS, RepublishCheckpoint, republications_due
from onecharge.orders.waiting import INDEX
from onecharge.runtime.alarms import Cause
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import ALL_SHARDS, ReadsThrottled, shard_of, to_item
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parallel import one_after_another
from onecharge.runtime.topics import Topic
from publish_events.mapping import order_event_from_item
from publish_events.publish import NotPublished, Publisher
from republish import republish
from republish.republish import Republisher, TransientPublishFailure
from republish.waiting import Source, waiting_orders, waiting_refunds
from tests.shop.dynamodb import MemoryDynamoDB
from tests.support.fake_sns import FakeSns
from tests.support.harness import Log, load_template
from tests.support.silent import SILENT

T0 = 1_800_000_000
HOUR = 3600
EVERY_SECONDS = 900
"""The schedule in template.yaml."""


def order_id(number: int) -> str:
    return f"ord_{number:032x}"


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@dataclass
class Outbox:
    """Orders, a topic, and a clock that the test sets."""

    log: Log
    dynamodb: Any
    now: float = T0
    pages_left: int = 10**6
    sns: FakeSns = field(default_factory=FakeSns)
    counted: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    """Of the alarms."""

    def __post_init__(self) -> None:
        self.topic = Topic(self.sns, "orders-topic", SILENT, SILENT)  # type: ignore[arg-type]  # The one method.

    def place(self, number: int = 1, **changes: Any) -> dict[str, Any]:
        """Store an order now; returns its stream record."""
        item = to_item(
            {
                "order_id": order_id(number),
                "status": "PENDING",
                "waiting_shard": shard_of(order_id(number)),
                "attempt": 1,
                "customer_id": "cus_1",
                "amount_minor": 1099,
                "currency": "EUR",
                "payment_method": "pm_card_visa",
                "fingerprint": "f",
                "placed_at": at(self.now),
                "waiting_since": at(self.now),
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
        """Store a refund of the order, requested now."""
        values = {
            "order_id": order_id(number),
            "refund_id": f"rfd_{number:032x}",
            "status": "PENDING",
            "waiting_shard": shard_of(order_id(number)),
            "attempt": 1,
            "amount_minor": 1099,
            "currency": "EUR",
            "fingerprint": "f",
            "requested_at": at(self.now),
            "correlation_id": "c",
        }
        self.dynamodb.put_item(TableName="order-refunds", Item=to_item({**values, **changes}))

    @property
    def sources(self) -> list[Source]:
        return [waiting_orders(self.dynamodb, "orders"), waiting_refunds(self.dynamodb, "order-refunds")]

    def republish(self, *, seconds_later: float = 0) -> list[int]:
        """One run, so much later; returns the numbers of the orders that it published, sorted."""
        self.now += seconds_later
        before = len(self.sns.published)
        Republisher(
            sources=self.sources,
            topic=self.topic,
            checkpoints=CheckpointStore(self.dynamodb, "orders-state", RepublishCheckpoint),
            clock=lambda: self.now,
            logger=self.log.logger,
            count=self._count,
            parallel=one_after_another,
        ).run(self._has_time)
        return sorted(int(event.subject[4:], 16) for event in self.sns.published[before:])

    def _count(self, name: str) -> None:
        self.counted[name] += 1
        if isinstance(name, Alarm):
            self.causes[name.cause] += 1

    def _has_time(self) -> bool:
        self.pages_left -= 1
        return self.pages_left >= 0

    def publish(self, record: dict[str, Any]) -> None:
        """What publish_events does with a stream record."""
        mappings = {"orders": order_event_from_item}
        Publisher(mappings, {ORDER_SERVICE: self.topic}, SILENT, SILENT).publish([record])


@pytest.fixture
def shop(log: Log) -> Outbox:
    keys = {"orders": ("order_id",), "order-refunds": ("order_id", "refund_id"), "orders-state": ("name",)}
    indexes = {
        "orders": {INDEX: ("waiting_shard", "waiting_since")},
        "order-refunds": {INDEX: ("waiting_shard", "requested_at")},
    }
    return Outbox(log, MemoryDynamoDB(keys=keys, indexes=indexes))


def test_an_order_that_stayed_pending_is_published_again(shop: Outbox) -> None:
    """The event is the one that its stream record makes, id included; a metric counts it."""
    shop.publish(shop.place())
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS) == [1]
    by_the_stream, again = shop.sns.published
    assert by_the_stream == again
    assert shop.counted == {"Republished": 1}


def test_an_order_that_is_new_or_has_an_outcome_is_not_published(shop: Outbox) -> None:
    """Whatever the outcome."""
    outcomes = {"PAID": "SUCCEEDED", "PAYMENT_DECLINED": "FAILED", "CANCELED": "FAILED"}
    for number, (status, of_refund) in enumerate(outcomes.items(), start=2):
        shop.place(number, status=status)
        shop.request_refund(number, status=of_refund)
    shop.now += FIRST_WAIT_SECONDS
    shop.place(1)
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS - 1) == []
    assert shop.republish(seconds_later=1) == [1]


def test_a_stale_index_publishes_nothing(shop: Outbox) -> None:
    """The index is eventually consistent: the item itself is read consistently, and its status decides."""
    shop.place()
    shop.now += FIRST_WAIT_SECONDS
    orders = shop.sources[0]
    stale, _ = orders.index.page(shard_of(order_id(1)), until=shop.now, after=None, limit=1)
    shop.place(status="PAID", waiting_since=at(T0))
    assert [entry["order_id"] for entry in stale] == [order_id(1)]
    assert [orders.event_of(item) for item in orders.read(stale)] == [None]


LATE = T0 + 3 * DAY_SECONDS


@pytest.mark.parametrize(
    "asked",
    [
        {"attempt": 2},
        {"status": "CANCELING", "cancel_requested_at": at(LATE)},
    ],
    ids=["another attempt", "a cancellation"],
)
def test_an_order_waits_since_it_was_last_asked_for(shop: Outbox, asked: dict[str, Any]) -> None:
    """However old it is: published again after 15 minutes, and not overdue.

    The event keeps the time at which the order was placed: its age decides whether a PaymentIntent may be created.
    """
    shop.place(**asked, placed_at=at(T0), waiting_since=at(LATE))
    shop.now = LATE
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS - 1) == []
    assert shop.republish(seconds_later=1) == [1]
    [event] = shop.sns.published
    assert isinstance(event, OrderPlacedEvent | CancelRequestedEvent)
    assert (event.data.attempt, event.data.placed_at.timestamp()) == (asked.get("attempt", 1), T0)
    assert "Alarm" not in shop.counted


def test_an_order_is_published_again_ever_more_rarely(shop: Outbox) -> None:
    """After 15 and 30 minutes, 1, 2, 4, 8 and 16 hours, then daily: an outage at Stripe causes no flood of requests."""
    shop.place()
    published = [(shop.now - T0) / HOUR for _ in range(3 * 96) if shop.republish(seconds_later=EVERY_SECONDS)]
    assert published == [0.25, 0.5, 1, 2, 4, 8, 16, 24, 48, 72]


def test_the_schedule_is_the_one_of_these_tests() -> None:
    """Every 15 minutes in template.yaml."""
    events = load_template()["Resources"]["RepublishFunction"]["Properties"]["Events"]
    assert [event["Properties"]["ScheduleExpression"] for event in events.values()] == [
        f"rate({EVERY_SECONDS // 60} minutes)"
    ]


def test_republications_due_grow_one_by_one() -> None:
    """At every second of three days."""
    due = [republications_due(seconds) for seconds in range(-1000, 3 * DAY_SECONDS)]
    assert {later - earlier for earlier, later in pairwise(due)} == {0, 1}


def test_a_run_is_bounded_and_the_next_continues(shop: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its checkpoint, shard by shard, the oldest items first; when a round is completed, the next begins."""
    for number in range(250):
        shop.place(number, waiting_since=at(T0 + number / 1000))
    shop.request_refund(250)
    by_shard = [[number for number in range(250) if shard_of(order_id(number)) == shard] for shard in ALL_SHARDS]
    pages = [list(page) for numbers in by_shard for page in batched(numbers, 20, strict=False)]
    pages += [[250] if shard_of(order_id(250)) == shard else [] for shard in ALL_SHARDS]
    monkeypatch.setattr(republish, "ITEMS_A_PAGE", 20)
    runs = []
    for _ in (*pages, "the next round"):
        shop.pages_left = 1
        runs.append(shop.republish(seconds_later=FIRST_WAIT_SECONDS + 1))
    assert runs == [*pages, pages[0]]


def test_only_what_may_be_due_is_read(shop: Outbox) -> None:
    """The index shows since when an order waits: a round in which nothing is due reads no item, however many wait."""
    for number in range(300):
        shop.place(number)
    shop.republish(seconds_later=FIRST_WAIT_SECONDS)
    requests = Counter[str]()
    shop.dynamodb.io.pause = lambda where: requests.update([where])
    assert shop.republish(seconds_later=EVERY_SECONDS / 2) == []
    assert "dynamodb BatchGetItem" not in requests
    assert len(shop.republish(seconds_later=EVERY_SECONDS / 2)) == 300
    # A page of each shard, of not more than a hundred.
    assert requests["dynamodb BatchGetItem"] == len(ALL_SHARDS)


def test_what_dynamodb_leaves_out_of_an_answer_is_read_again(shop: Outbox) -> None:
    """As when it throttles. If it goes on, the next run begins with the same page."""
    for number in range(30):
        shop.place(number)
    left_out = iter([True] * 5)
    shop.dynamodb.io.fault = lambda where, kinds: (
        "unprocessed" if kinds == ("unprocessed",) and next(left_out, 0) else None
    )
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS) == list(range(30))
    for number in range(100, 200):
        shop.place(number)
    shop.dynamodb.io.fault = lambda where, kinds: "unprocessed" if kinds == ("unprocessed",) else None
    with pytest.raises(ReadsThrottled):
        shop.republish(seconds_later=FIRST_WAIT_SECONDS)
    shop.dynamodb.io.fault = lambda where, kinds: None
    shop.republish(seconds_later=60)
    assert {int(event.subject[4:], 16) for event in shop.sns.published} >= set(range(100, 200))


@pytest.mark.parametrize(
    ("status", "event_id"),
    [
        ("REQUIRES_ACTION", "placed"),
        ("CANCELING", "cancel_requested"),
    ],
)
def test_every_status_that_waits_is_published_again(shop: Outbox, status: str, event_id: str) -> None:
    """The outcome's own stream record may be lost: the event of the order's current attempt asks for it."""
    shop.place(status=status, attempt=2)
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS - 1) == []
    assert shop.republish(seconds_later=1) == [1]
    [event] = shop.sns.published
    assert event.id == f"{order_id(1)}:2:{event_id}:{T0 * 1000}"
    shop.republish(seconds_later=DAY_SECONDS)
    assert shop.counted == {"Republished": 2, "WaitingForADay": 1, "Alarm": 1}


def test_a_refund_that_stays_pending_is_published_again(shop: Outbox) -> None:
    """With the id that its stream record has given it, ever more rarely, with an alarm after a day."""
    shop.request_refund()
    published = [(shop.now - T0) / HOUR for _ in range(2 * 96) if shop.republish(seconds_later=EVERY_SECONDS)]
    assert published == [0.25, 0.5, 1, 2, 4, 8, 16, 24, 48]
    assert {event.id for event in shop.sns.published} == {f"rfd_{1:032x}:requested"}
    assert shop.counted["Alarm"] == 96 + 1


def test_an_invalid_refund_does_not_block_the_others(shop: Outbox) -> None:
    """It raises the alarm in every round."""
    for number in (1, 2, 3):
        shop.request_refund(number, **({"amount_minor": -1} if number == 2 else {}))
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS) == [1, 3]
    assert shop.counted["Alarm"] == 1


@pytest.mark.parametrize("spoiled", [{"requested_at": "2026-13-01T00:00:00+00:00"}, {"status": 7}])
def test_a_refund_whose_entry_cannot_be_read_is_read_and_reported(shop: Outbox, spoiled: dict[str, Any]) -> None:
    """In every round; neither the other refunds nor the orders wait for it."""
    shop.place(4)
    for number in (1, 2, 3):
        shop.request_refund(number, **(spoiled if number == 2 else {}))
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS) == [1, 3, 4]
    shop.republish(seconds_later=EVERY_SECONDS)
    assert shop.counted["Alarm"] == 2


def test_what_waits_for_a_day_raises_the_alarm(shop: Outbox) -> None:
    """In every run. The log line that names the order is written with each publication, and holds no more than ids."""
    shop.place()
    shop.republish(seconds_later=DAY_SECONDS - 1)
    assert "Alarm" not in shop.counted
    shop.republish(seconds_later=1)
    shop.republish(seconds_later=EVERY_SECONDS)
    assert (shop.counted["Alarm"], shop.counted["WaitingForADay"], shop.counted["Republished"]) == (2, 2, 2)
    [line] = [line for line in shop.log.lines if line["level"] == "ERROR"]
    assert (line["order_id"], line["attempt"], line["waiting_seconds"]) == (order_id(1), 1, DAY_SECONDS)


@pytest.mark.parametrize(
    "spoiled",
    [
        {"amount_minor": -1},
        {"currency": "XXX"},
        {"placed_at": "yesterday"},
        {"waiting_since": "2026-13-01T00:00:00+00:00"},
        {"cancel_requested_at": 5},
        {"status": None},
        {"status": "ON_HOLD"},
        {"status": ["PENDING"]},
    ],
)
def test_an_invalid_order_does_not_block_the_others(shop: Outbox, spoiled: dict[str, Any]) -> None:
    """Whatever is wrong with it. It raises the alarm."""
    for number in (1, 2, 3):
        shop.place(number, **(spoiled if number == 2 else {}))
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS) == [1, 3]
    assert shop.counted["Alarm"] == 1
    assert [line["order_id"] for line in shop.log.lines if line["level"] == "ERROR"] == [order_id(2)]


@pytest.mark.parametrize("spoiled", [{"waiting_since": "2026-13-01T00:00:00+00:00"}, {"status": "ON_HOLD"}])
def test_an_order_whose_entry_cannot_be_read_raises_the_alarm_in_every_round(
    shop: Outbox, spoiled: dict[str, Any]
) -> None:
    """Its entry does not show when it is due: the item is read each time."""
    shop.place(**spoiled)
    for _ in range(3):
        assert shop.republish(seconds_later=FIRST_WAIT_SECONDS) == []
    assert shop.causes == {Cause.UNEXPECTED_ERROR: 3}


def test_what_sns_does_not_accept_stays_due(shop: Outbox) -> None:
    """Until SNS accepts it, although no republication is due at that time any more. The run fails: if all do, as when
    a right is missing, nothing but the function's errors says so."""
    shop.place()
    shop.sns.refuses = lambda event: True
    with pytest.raises(TransientPublishFailure):
        shop.republish(seconds_later=FIRST_WAIT_SECONDS)
    shop.sns.down = {"orders-topic"}
    with pytest.raises(EndpointConnectionError):
        shop.republish(seconds_later=60)
    shop.sns.down, shop.sns.refuses = set(), lambda event: False
    assert shop.republish(seconds_later=60) == [1]
    assert shop.republish(seconds_later=60) == []


def test_a_permanent_publish_failure_does_not_block_the_others(shop: Outbox) -> None:
    """It raises the alarm, and the round is completed."""
    for number in range(150):
        shop.place(number, waiting_since=at(T0 + number / 1000))
    shop.sns.refuses, shop.sns.code = lambda event: event.subject == order_id(7), "InvalidParameter"
    assert shop.republish(seconds_later=FIRST_WAIT_SECONDS + 1) == [number for number in range(150) if number != 7]
    assert shop.counted == {"Republished": 149, "Alarm": 1}


def test_an_order_is_published_although_its_stream_record_is_lost(shop: Outbox) -> None:
    """SNS is down for longer than a stream keeps its records."""
    record = shop.place()
    shop.sns.down = {"orders-topic"}
    while shop.now < T0 + DAY_SECONDS + HOUR:
        with pytest.raises(NotPublished, match="EndpointConnectionError"):
            shop.publish(record)
        with suppress(EndpointConnectionError):
            assert shop.republish(seconds_later=EVERY_SECONDS) == []
    shop.sns.down = set()
    assert shop.republish(seconds_later=EVERY_SECONDS) == [1]
    shop.republish(seconds_later=2 * DAY_SECONDS)
    shop.publish(record)
    assert len(shop.sns.published) == 3
    assert len({event.model_dump_json() for event in shop.sns.published}) == 1


def test_of_two_concurrent_runs_one_ends(shop: Outbox) -> None:
    """It has published a duplicate, which is harmless, and leaves the rest to the other run."""
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
