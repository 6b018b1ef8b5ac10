"""republish: publishes again what waits for an outcome, and nothing else. The tables are in memory."""

from collections import Counter
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import batched
from typing import Any

import pytest

from onecharge.contract.refund_events import RefundState
from onecharge.contract.states import OrderStatus
from onecharge.orders.republication import DAY_SECONDS, FIRST_WAIT_SECONDS, RepublishCheckpoint
from onecharge.orders.transitions import WAITING
from onecharge.runtime.alarms import Cause
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import ALL_SHARDS, ReadsThrottled, shard_of, to_item
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parallel import one_after_another
from onecharge.runtime.topics import Topic
from republish import republish
from republish.republish import Republisher, TransientPublishFailure, waiting_orders, waiting_refunds
from tests.shop.dynamodb import MemoryDynamoDB
from tests.support.fake_sns import FakeSns
from tests.support.harness import Log, create_table
from tests.support.silent import SILENT

T0, HOUR = 1_800_000_000, 3600
EVERY_SECONDS = 900
"""The schedule in template.yaml."""
TABLES = {"orders": "OrdersTable", "refunds": "OrderRefundsTable", "state": "OrdersStateTable"}
"""Of template.yaml."""


def order_id(number: int) -> str:
    return f"ord_{number:032x}"


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


class Outbox:
    """Orders, refunds, a topic, and a clock that the test sets."""

    def __init__(self, log: Log) -> None:
        self.log, self.sns, self.now, self.pages = log, FakeSns(), float(T0), 10**6
        self.counted, self.causes = Counter[str](), Counter[str]()
        dynamodb: Any = MemoryDynamoDB()
        for table, logical_id in TABLES.items():
            create_table(dynamodb, table, logical_id)
        self.dynamodb, client = dynamodb, self.sns
        self.topic = Topic(client, "orders-topic", SILENT, SILENT)  # type: ignore[arg-type]  # The one method.
        self.sources = [waiting_orders(dynamodb, "orders"), waiting_refunds(dynamodb, "refunds")]

    def wait(self, table: str = "orders", number: int = 1, **changes: Any) -> None:
        """Store an order, or a refund, that begins to wait now."""
        of_order = {"customer_id": "cus_1", "payment_method": "pm_card_visa", "placed_at": at(self.now)}
        values = {
            **{"order_id": order_id(number), "waiting_shard": shard_of(order_id(number)), "status": "PENDING"},
            **{"attempt": 1, "amount_minor": 1099, "currency": "EUR", "fingerprint": "f", "correlation_id": "c"},
            **(of_order if table == "orders" else {"refund_id": f"rfd_{number:032x}"}),
            **{"waiting_since" if table == "orders" else "requested_at": at(self.now)},
        }
        self.dynamodb.put_item(TableName=table, Item=to_item({**values, **changes}))

    def republish(self, *, seconds_later: float = 0) -> list[int]:
        """One run, so much later; returns the numbers of the orders that it published, sorted."""
        self.now += seconds_later
        before, left = len(self.sns.published), iter(range(self.pages, -1, -1))
        Republisher(
            sources=self.sources,
            topic=self.topic,
            checkpoints=CheckpointStore(self.dynamodb, "state", RepublishCheckpoint),
            clock=lambda: self.now,
            logger=self.log.logger,
            count=self._count,
            parallel=one_after_another,
        ).run(lambda: next(left) > 0)
        return sorted(int(event.subject[4:], 16) for event in self.sns.published[before:])

    def _count(self, name: str) -> None:
        (self.causes if isinstance(name, Alarm) else self.counted)[getattr(name, "cause", name)] += 1

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [line for line in self.log.lines if line["level"] == "ERROR"]


@pytest.fixture
def outbox(log: Log) -> Outbox:
    return Outbox(log)


# ---------------------------------------------------------------- what, and when


@pytest.mark.parametrize("table", ["orders", "refunds"])
def test_what_waits_is_published_ever_more_rarely(outbox: Outbox, table: str) -> None:
    """After 15 and 30 minutes, 1, 2, 4, 8 and 16 hours, then daily, the same event: an outage at Stripe causes no flood
    of requests. After a day each run raises an alarm; the log names the order with each publication."""
    outbox.wait(table)
    published = [(outbox.now - T0) / HOUR for _ in range(192) if outbox.republish(seconds_later=EVERY_SECONDS)]
    assert published == [0.25, 0.5, 1, 2, 4, 8, 16, 24, 48]
    assert len({event.model_dump_json() for event in outbox.sns.published}) == 1
    assert (outbox.counted, outbox.causes) == ({"Republished": 9}, {Cause.OVERDUE: 97})
    told = [(line["order_id"], line["waiting_seconds"], line["cause"]) for line in outbox.errors]
    assert told == [(order_id(1), days * DAY_SECONDS, Cause.OVERDUE) for days in (1, 2)]


STATES = [*(("orders", status) for status in OrderStatus), *(("refunds", state) for state in RefundState)]


@pytest.mark.parametrize(("table", "status"), STATES)
def test_only_what_waits_is_published(outbox: Outbox, table: str, status: str) -> None:
    """Whatever the index shows: it is eventually consistent, and the item is read. An order waits since it was last
    asked for, however old it is; its event keeps the time at which it was placed, which decides whether it may be
    charged. The outcome's stream record may be lost: REQUIRES_ACTION asks for it with the attempt's own event."""
    changes: dict[str, Any] = {"attempt": 2, "placed_at": at(T0 - 3 * DAY_SECONDS)} if table == "orders" else {}
    outbox.wait(table, **changes, status=status)
    waits = status in (*WAITING, RefundState.PENDING)
    assert outbox.republish(seconds_later=FIRST_WAIT_SECONDS - 1) == []
    assert outbox.republish(seconds_later=1) == [1] * waits
    assert outbox.causes == {}
    if waits and table == "orders":
        [event] = outbox.sns.published
        kind = "cancel_requested" if status == "CANCELING" else "placed"
        assert event.id == f"{order_id(1)}:2:{kind}:{T0 * 1000}"
        assert event.data.placed_at.timestamp() == T0 - 3 * DAY_SECONDS


NO_TIME = "2026-13-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("table", "spoiled", "is_unreadable"),
    [
        ("orders", {"amount_minor": -1}, False),
        ("orders", {"waiting_since": NO_TIME}, True),
        ("orders", {"status": ["PENDING"]}, True),
        ("refunds", {"amount_minor": -1}, False),
        ("refunds", {"requested_at": NO_TIME}, True),
        ("refunds", {"status": 7}, True),
    ],
)
def test_an_invalid_item_does_not_block_the_others(
    outbox: Outbox, table: str, spoiled: dict[str, Any], is_unreadable: bool
) -> None:
    """It raises the alarm when it is due; in every round, if its entry does not show when that is."""
    for number in (1, 2, 3):
        outbox.wait(table, number, **(spoiled if number == 2 else {}))
    assert outbox.republish(seconds_later=FIRST_WAIT_SECONDS) == [1, 3]
    assert outbox.republish(seconds_later=1) == []
    assert outbox.causes == {Cause.UNEXPECTED_ERROR: 1 + is_unreadable}
    assert {line["order_id"] for line in outbox.errors} == {order_id(2)}


# ---------------------------------------------------------------- runs


def test_a_run_is_bounded_and_the_next_continues(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its checkpoint, shard by shard, the oldest items first; when a round is completed, the next begins."""
    for number in range(250):
        outbox.wait(number=number, waiting_since=at(T0 + number / 1000))
    outbox.wait("refunds", 250)
    by_shard = [[number for number in range(250) if shard_of(order_id(number)) == shard] for shard in ALL_SHARDS]
    pages = [list(page) for numbers in by_shard for page in batched(numbers, 20, strict=False)]
    pages += [[250] if shard_of(order_id(250)) == shard else [] for shard in ALL_SHARDS]
    monkeypatch.setattr(republish, "ITEMS_A_PAGE", 20)
    outbox.pages = 1
    runs = [outbox.republish(seconds_later=FIRST_WAIT_SECONDS + 1) for _ in (*pages, "the next round")]
    assert runs == [*pages, pages[0]]


def test_only_what_may_be_due_is_read(outbox: Outbox) -> None:
    """A round in which nothing is due reads no item, however many wait; otherwise a hundred with one request. What
    DynamoDB leaves out of an answer, as when it throttles, is read again, or by the next run."""
    for number in range(300):
        outbox.wait(number=number)
    requests = Counter[str]()
    outbox.dynamodb.io.pause = lambda where: requests.update([where])
    assert outbox.republish(seconds_later=FIRST_WAIT_SECONDS - 1) == []
    assert "dynamodb BatchGetItem" not in requests
    left_out = iter([True] * 5)
    outbox.dynamodb.io.fault = lambda where, kinds: (
        "unprocessed" if "unprocessed" in kinds and next(left_out, 0) else None
    )
    assert len(outbox.republish(seconds_later=1)) == 300
    assert requests["dynamodb BatchGetItem"] == len(ALL_SHARDS) + 5
    outbox.dynamodb.io.fault = lambda where, kinds: "unprocessed" if "unprocessed" in kinds else None
    with pytest.raises(ReadsThrottled):
        outbox.republish(seconds_later=FIRST_WAIT_SECONDS)
    outbox.dynamodb.io.fault = lambda where, kinds: None
    assert len(outbox.republish(seconds_later=60)) == 300


@pytest.mark.parametrize("codes", [["InvalidParameter"], ["Throttled"], ["InvalidParameter", "Throttled"]])
def test_what_sns_refuses_is_skipped_or_stays_due(outbox: Outbox, codes: list[str]) -> None:
    """A permanent failure raises the alarm, and blocks nothing. A transient one fails the run, also beside a permanent
    one, and stays due, although no republication is due at that time any more."""
    for number in range(20):
        outbox.wait(number=number, waiting_shard="0")
    refused = {order_id(number): code for number, code in enumerate(codes)}
    outbox.sns.refuses = lambda event: refused.get(event.subject)
    is_transient = "Throttled" in codes
    with pytest.raises(TransientPublishFailure) if is_transient else nullcontext():
        outbox.republish(seconds_later=FIRST_WAIT_SECONDS)
    assert outbox.causes == ({Cause.UNEXPECTED_ERROR: 1} if "InvalidParameter" in codes else {})
    assert outbox.counted["Republished"] == 20 - len(codes)
    refused.clear()
    assert len(outbox.republish(seconds_later=60)) == 20 * is_transient
    assert outbox.republish(seconds_later=60) == []
