"""What the console reads: the log in overlapping windows, tables, and Stripe's charges; on moto and the stand-in."""

import json
import time
from collections.abc import Iterator

import pytest

from console import reading
from console.reading import Reader
from console.tally import Seen, tally
from stripe_standin.faults import Fault
from tests.support.operated_stack import OperatedStack

ORDER_ID = "ord_" + "a" * 32


class Log:
    """CloudWatch Logs of the stack: events with the time at which they were received."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []

    def get_paginator(self, operation: str) -> "Log":
        return self

    def paginate(self, *, startTime: int, endTime: int, **_: object) -> Iterator[dict[str, object]]:
        yield {"events": [each for each in self.events if startTime <= int(str(each["timestamp"])) <= endTime]}

    def write(self, message: str, *, at: float, **fields: object) -> None:
        line = json.dumps({"message": message, "service": "orders_api", "order_id": ORDER_ID, **fields})
        self.events.append({"timestamp": int(at * 1000), "logStreamName": "w", "message": line})


@pytest.fixture
def log(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    operated.answers["logs"] = made
    operated.stack.__dict__["_resources"]["FunctionsLogGroup"] = "/aws/lambda/shop"
    monkeypatch.setattr(reading, "_FRESH_SECONDS", 0)
    return made


def test_a_line_is_read_once_although_windows_overlap(operated: OperatedStack, log: Log) -> None:
    """Also one that reaches CloudWatch later than a younger one."""
    reader, now = Reader(operated.stack, time.time() - 60), time.time()
    log.write("second", at=now)
    assert [line.message for line in reader.look().lines[ORDER_ID]] == ["second"]
    log.write("first", at=now - 5)
    for _ in range(2):
        assert [line.message for line in reader.look().lines[ORDER_ID]] == ["first", "second"]


def test_an_orders_page_takes_no_line_from_the_list(operated: OperatedStack, log: Log) -> None:
    """A page that is opened before the list has a line of it reads the log by itself; the next look reads it, too."""
    operated.place(order_id=ORDER_ID)
    reader, now = Reader(operated.stack, time.time() - 60), time.time()
    reader.look()
    log.write("order placed", at=now)
    reader._seen = Seen(time.time() + 3600)
    assert "order stored" in str([each.what for each in reader.order(ORDER_ID).timeline.moments])
    reader._seen = None
    assert [line.message for line in reader.look().lines[ORDER_ID]] == ["order placed"]


def test_while_stripe_does_not_answer_the_rest_is_shown(operated: OperatedStack, log: Log) -> None:
    """The break that should be watched is watched: with the charges of the last look, and no order called lost.

    What an order was charged is unknown then, and not 0.
    """
    operated.place(order_id=ORDER_ID, status="PAID")
    operated.intent(ORDER_ID, confirm="pm_card_visa")
    reader = Reader(operated.stack, time.time() - 60)
    before = tally(reader.look())
    assert reader.order(ORDER_ID).story.charges == 1
    operated.standin.add_fault(Fault.UNAVAILABLE_503, times=None, method="GET", path="/v1/*")
    during = tally(reader.look())
    assert (before.ledger_read, during.ledger_read) == (True, False)
    assert (len(during.rows), during.total("charges"), during.total("is_lost")) == (1, 1, 0)
    assert reader.order(ORDER_ID).story.charges is None
    assert tally(Reader(operated.stack, time.time() - 60).look()).total("is_lost") == 0


def test_charges_are_stripes_and_statuses_the_tables(operated: OperatedStack, log: Log) -> None:
    """An order that no line names is known by its charge; what another application charged is not ours."""
    operated.place(order_id=ORDER_ID, status="PAID")
    operated.intent(ORDER_ID, confirm="pm_card_visa")
    operated.intent(ORDER_ID, confirm="pm_card_visa", metadata={"of": "another application"})
    for _ in range(2):
        operated.intent(ORDER_ID, confirm="pm_card_visa", metadata={"order_id": "1001"})
    seen = Reader(operated.stack, time.time() - 60).look()
    assert seen.charges == [ORDER_ID]
    assert (seen.stored[ORDER_ID].status, seen.is_complete) == ("PAID", True)
