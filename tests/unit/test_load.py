"""`make load`: requests are sent when they are due, latency counts from then, and the picture shows every one."""

import json
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from xml.etree import ElementTree

import pytest

from benchmarks.load.figures import Latencies, figures_of, percentile
from benchmarks.load.open_loop import NOT_SENT, OpenLoop, Sent, due_times
from benchmarks.load.picture import in_words, svg
from benchmarks.load.traffic import paid_times


@dataclass
class FakeClock:
    """Time passes only while somebody sleeps; then what is due by then happens first."""

    time: float = 1000.0
    late_seconds: float = 0
    """By how much it oversleeps."""
    events: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        until = self.time + seconds + self.late_seconds
        while ready := sorted((at, index) for index, (at, _) in enumerate(self.events) if at <= until):
            self.time, run = self.events.pop(ready[0][1])
            run()
        self.time = until

    def after(self, seconds: float) -> Callable[[Callable[[], None]], None]:
        """Something that runs a request beside the loop, so that it is over after so many seconds."""
        return lambda run: self.events.append((self.time + seconds, run))


def test_requests_are_due_at_a_constant_rate() -> None:
    assert list(due_times(4, 2)) == [0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]


def test_a_slow_response_delays_no_later_request() -> None:
    """Each takes 10 s, and the five of one second are all sent within it."""
    clock, sent_at = FakeClock(), list[float]()
    loop = OpenLoop(str, clock=clock, start=clock.after(10), on_sent=lambda: sent_at.append(clock.now()))
    requests = loop.run(rate=5, seconds=1)
    assert sent_at == pytest.approx([1000, 1000.2, 1000.4, 1000.6, 1000.8])
    assert [request.answered for request in requests] == [None] * 5
    loop.wait(60)
    assert [each.answered - each.due for each in requests if each.answered] == pytest.approx([10] * 5)


def test_latency_counts_from_when_a_request_was_due() -> None:
    """A sender that is 3 s late is late for the customer: it is in the latency, not left out."""
    clock = FakeClock(late_seconds=3)
    loop = OpenLoop(str, clock=clock, start=lambda run: run())
    first, second = loop.run(rate=1, seconds=2)
    assert first.answered == first.due
    assert second.answered == second.due + 3


def test_what_a_late_sender_owes_is_sent_at_once() -> None:
    """It does not slow down to what it reaches: the offered rate stays, and so does when each was due."""
    clock = FakeClock(late_seconds=2)
    requests = OpenLoop(str, clock=clock, start=lambda run: run()).run(rate=1, seconds=4)
    assert [each.answered and each.answered - 1000 for each in requests] == [0, 3, 3, 3]
    assert [each.answered and each.answered - each.due for each in requests] == [0, 2, 1, 0]


def test_a_failed_request_is_an_error_of_its_kind() -> None:
    def fail(number: int) -> str:
        raise ValueError("HTTP 503" if number else "")

    [unnamed, named] = OpenLoop(fail, clock=FakeClock(), start=lambda run: run()).run(rate=2, seconds=1)
    assert (unnamed.error, named.error) == ("ValueError", "HTTP 503")
    assert named.order_id is None


def test_a_request_beyond_the_limit_in_flight_is_not_sent_and_said_so() -> None:
    clock = FakeClock()
    loop = OpenLoop(str, clock=clock, start=clock.after(100), in_flight_max=2)
    requests = loop.run(rate=3, seconds=1)
    assert [each.error for each in requests] == [None, None, NOT_SENT]


def test_waiting_for_responses_ends() -> None:
    clock = FakeClock()
    loop = OpenLoop(str, clock=clock, start=clock.after(100))
    loop.run(rate=1, seconds=1)
    loop.wait(5)
    assert 1005 <= clock.now() < 1006


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, None),
        ([7], 0.99, 7),
        ([3, 1, 2], 0.5, 2),
        (range(1, 101), 0.99, 99),
        (range(1, 101), 1, 100),
        (range(1, 102), 0.99, 100),
        ([1, 1, 1, 9], 0.5, 1),
    ],
)
def test_a_percentile_is_a_value_that_occurred(values: list[float], share: float, expected: float | None) -> None:
    """The nearest rank: nothing is interpolated."""
    assert percentile(values, share) == expected


def paid(number: int, *, answered: float = 0.1, took: float | None = 1.0, order_id: str | None = "") -> Sent:
    due = 1000.0 + number
    return Sent(
        number,
        due,
        answered=due + answered,
        order_id=order_id if order_id != "" else f"ord_{number}",
        paid=None if took is None else due + took,
        error=None if order_id is not None else "HTTP 503",
    )


def test_the_figures_of_a_run() -> None:
    requests = [paid(0), paid(1, answered=0.3, took=3), paid(2, order_id=None, took=None)]
    figures = figures_of(requests, rate=1, seconds=3, charges={"ord_0": 1, "ord_1": 1})
    assert (figures.sent, figures.accepted, figures.paid, figures.charged_once) == (3, 2, 2, 2)
    assert figures.errors == {"HTTP 503": 1}
    assert astuple(figures.to_answer) == pytest.approx((0.1, 0.3, 0.3))
    assert figures.paid_rate == 0.5, "two, until 4 s after the first was due"
    assert figures.is_kept


@pytest.mark.parametrize(
    "charges", [{"ord_0": 1}, {"ord_0": 2, "ord_1": 1}, {"ord_0": 1, "ord_1": 1, "ord_of_nobody": 1}], ids=str
)
def test_a_run_in_which_not_each_order_is_charged_once_fails(charges: dict[str, int]) -> None:
    assert not figures_of([paid(0), paid(1)], rate=1, seconds=2, charges=charges).is_kept


def test_a_run_in_which_an_order_is_not_paid_fails() -> None:
    requests = [paid(0), paid(1, took=None)]
    assert not figures_of(requests, rate=1, seconds=2, charges={"ord_0": 1, "ord_1": 1}).is_kept


def test_a_run_without_an_answer_has_figures_too() -> None:
    figures = figures_of([paid(0, order_id=None, took=None)], rate=1, seconds=1, charges={})
    assert figures.to_answer == Latencies(None, None, None)
    assert json.loads(figures.as_json())["accepted_rate"] == 0
    assert in_words(figures.to_paid) == "none"


def test_the_time_of_paid_is_the_log_lines_own() -> None:
    """The first line that says so; lines of other functions and statuses, and those that are no JSON, are none."""
    line = {"service": "update_order", "order_id": "ord_1", "status": "PAID"}
    messages = [
        "START RequestId: 1",
        json.dumps({**line, "status": "PAYMENT_DECLINED", "timestamp": "2026-11-22 00:00:01,000+0000"}),
        json.dumps({**line, "timestamp": "2026-11-22 00:00:02,250+0000"}),
        json.dumps({**line, "timestamp": "2026-11-22 00:00:03,000+0000"}),
        json.dumps({**line, "service": "charge_order", "timestamp": "2026-11-22 00:00:01,500+0000"}),
    ]
    assert paid_times(messages) == {"ord_1": 1795305602.25}


def test_the_picture_has_a_point_for_every_latency() -> None:
    """And is an SVG, also of a run in which everything failed."""
    requests = [paid(0), paid(1, took=None), paid(2, order_id=None, took=None)]
    picture = svg(requests, figures_of(requests, rate=1, seconds=3, charges={}))
    root = ElementTree.fromstring(picture)  # noqa: S314  # Ours.
    points = [each.attrib for each in root.iter("{http://www.w3.org/2000/svg}circle") if each.attrib["r"] == "2.5"]
    assert sorted(each["class"] for each in points) == ["answer", "answer", "error", "paid"]
    slowest = next(each for each in points if each["class"] == "paid")
    fastest = next(each for each in points if each["class"] == "answer")
    assert float(slowest["cy"]) < float(fastest["cy"]), "what takes longer is higher"
    assert svg([], figures_of([], rate=1, seconds=1, charges={}))
