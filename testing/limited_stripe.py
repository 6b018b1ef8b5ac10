"""Workers that charge a backlog of orders under Stripe's rate limit, in simulated time: several designs, one limiter.

The limiter is the stand-in's. A worker is a Lambda environment that gets a batch of 10 as soon as it has finished one.
"""

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from local.stripe_standin.messages import Request
from local.stripe_standin.rate_limits import RateLimits
from onecharge.payments.instruments import Instruments
from onecharge.payments.stripe_limit import HEADROOM, SharedRate, Turns
from onecharge.runtime.aws import BATCH_SIZE
from onecharge.runtime.consumer import backoff_seconds
from testing.builders import T0
from testing.silent import SILENT
from testing.simulation.dynamodb import MemoryDynamoDB

CREATE = Request(method="POST", path="/v1/payment_intents", parameters={})
CONFIRM = Request(method="POST", path="/v1/payment_intents/pi_1/confirm", parameters={})
DYNAMODB_SECONDS = 0.004
POLL_SECONDS = 0.03
"""From the end of a batch until the worker has its next one."""
RECORD_SECONDS, INVOCATION_SECONDS = 26.0, 30.0


class Design(StrEnum):
    """How workers keep Stripe's limit."""

    CONCURRENCY = "concurrency alone"
    OWN_SHARE = "each worker its share of each second"
    SHARED_SLOTS = "shared slots"
    UNEVEN_CONFIRMS = "shared slots, confirmed as creates come back"


@dataclass(frozen=True)
class Latency:
    """How long Stripe takes for one request."""

    name: str
    seconds: Callable[[random.Random], float]


LATENCIES = (
    Latency("100 ms", lambda _: 0.1),
    Latency("300 ms", lambda _: 0.3),
    Latency("1000 ms", lambda _: 1.0),
    Latency("300 ms, log-normal", lambda chance: 0.3 * math.exp(chance.gauss(0, 0.35))),
    Latency("100 to 1000 ms", lambda chance: chance.uniform(0.1, 1)),
)


@dataclass(frozen=True)
class Outcome:
    """The result for the whole backlog."""

    orders_per_second: float
    refused: int
    """Requests that were answered 429."""
    receive_count_max: int
    billed_seconds: float
    """Of all invocations, for one order."""


@dataclass
class Backlog:
    """A queue full of orders, its workers and Stripe. Time is that of the events, which run one after the other."""

    limit: int
    workers: int
    latency: Latency
    design: Design
    orders: int
    arriving_per_second: float | None = None
    """None: all orders wait from the beginning."""
    seed: int = 1
    now: float = float(T0)
    refused: int = 0
    finished: int = 0
    billed_seconds: float = 0
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self._count = itertools.count()
        self.limiter = RateLimits(lambda: self.now, per_endpoint=self.limit)
        self.queue = [(self.now + self._seconds_until(order), order) for order in range(self.orders)]
        heapq.heapify(self.queue)
        self.receives = [0] * self.orders
        self.created: set[int] = set()
        self.dynamodb: Any = MemoryDynamoDB(keys={"limits": ("name",)})
        self.instruments = Instruments(lambda: self.now, SILENT, SILENT)

    def _seconds_until(self, order: int) -> float:
        """When the order arrives: somewhen in its part of the time."""
        return (order + self.chance.random()) / self.arriving_per_second if self.arriving_per_second else 0

    def run(self) -> Outcome:
        """Until every order is charged."""
        for _ in range(self.workers):
            self.later(self.chance.random() / 5, _Worker(self).poll)
        while self.finished < self.orders:
            self.now, _, event = heapq.heappop(self.events)
            event()
        return Outcome(
            self.orders / (self.now - T0), self.refused, max(self.receives), self.billed_seconds / self.orders
        )

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self._count), event))

    def receive(self) -> list[int]:
        """A batch of what is visible."""
        batch: list[int] = []
        while self.queue and self.queue[0][0] <= self.now and len(batch) < BATCH_SIZE:
            batch.append(heapq.heappop(self.queue)[1])
        for order in batch:
            self.receives[order] += 1
        return batch

    def back_off(self, order: int) -> None:
        seconds = backoff_seconds(self.receives[order], jitter=self.chance.random())
        heapq.heappush(self.queue, (self.now + seconds, order))

    def request(self, request: Request, answered: Callable[[bool], None]) -> None:
        """A request to Stripe; `answered` gets whether it was executed."""

        def arrives() -> None:
            if self.limiter.reason_to_refuse("acct", request):
                self.refused += 1
                self.later(DYNAMODB_SECONDS, lambda: answered(False))
            else:
                self.later(self.latency.seconds(self.chance), lambda: answered(True))

        self.later(self.chance.uniform(0.005, 0.008), arrives)


# ---------------------------------------------------------------- how a worker keeps the limit

type Waits = tuple[float, Callable[[], float]]
"""For how many seconds an order waits; and what says, once it is created, for how many more until its confirm."""


class _Unpaced:
    """Nothing but the number of workers bounds their requests."""

    def take(self, count: int) -> None:
        """A batch of so many orders comes."""

    def begin(self) -> Waits | None:
        """The waits of the batch's next order; None if it goes back to the queue."""
        return 0, lambda: 0


class _OwnShare(_Unpaced):
    """In each second a worker sends no more than its share, to each endpoint."""

    def __init__(self, shop: Backlog) -> None:
        self.shop, self.share = shop, max(1, shop.limit // shop.workers)
        self.sent: dict[str, deque[float]] = {"create": deque(), "confirm": deque()}

    def begin(self) -> Waits | None:
        return self._wait("create"), lambda: self._wait("confirm")

    def _wait(self, endpoint: str) -> float:
        sent, now = self.sent[endpoint], self.shop.now
        at = max(now, sent[-self.share] + 1.02) if len(sent) >= self.share else now
        sent.append(at)
        return at - now


class _Slots(_Unpaced):
    """What is deployed: slots that all workers share."""

    def __init__(self, shop: Backlog, *, confirms_evenly: bool) -> None:
        self.confirms_evenly = confirms_evenly
        self.slept = 0.0
        rate = SharedRate(shop.dynamodb, "limits", "x", rate=HEADROOM * shop.limit, instruments=shop.instruments)
        self.shop, self.rate = shop, rate

    def _sleep(self, seconds: float) -> None:
        self.slept = seconds

    def take(self, count: int) -> None:
        begin_until = self.shop.now + INVOCATION_SECONDS - RECORD_SECONDS
        # On one thread: no record waits for the others.
        self.turns = Turns(self.rate, self.shop.instruments, at_once=0, begin_until=begin_until, sleep=self._sleep)

    def begin(self) -> Waits | None:
        turn = self.turns.turn()
        seconds = turn.begin()
        if seconds is None:
            return None
        return seconds, lambda: self._slept_in(turn.confirm) if self.confirms_evenly else 0

    def _slept_in(self, wait: Callable[[], None]) -> float:
        self.slept = 0
        wait()
        return self.slept


def _pacing_of(shop: Backlog) -> _Unpaced:
    match shop.design:
        case Design.CONCURRENCY:
            return _Unpaced()
        case Design.OWN_SHARE:
            return _OwnShare(shop)
        case _:
            return _Slots(shop, confirms_evenly=shop.design is Design.SHARED_SLOTS)


# ---------------------------------------------------------------- a worker


class _Worker:
    """A Lambda environment, from batch to batch."""

    def __init__(self, shop: Backlog) -> None:
        self.shop, self.pacing = shop, _pacing_of(shop)
        self.unfinished, self.begun_at = 0, 0.0

    def poll(self) -> None:
        batch = self.shop.receive()
        if not batch:
            self.shop.later(0.1, self.poll)
            return
        self.unfinished, self.begun_at = len(batch), self.shop.now
        self.pacing.take(len(batch))
        for order in batch:
            self._begin(order)

    def _begin(self, order: int) -> None:
        waits = self.pacing.begin()
        if waits is None:
            self._end(order, executed=False)
            return
        seconds, until_confirm = waits

        def claimed() -> None:
            if order in self.shop.created:
                created(executed=True)
            else:
                self.shop.request(CREATE, created)

        def created(executed: bool) -> None:
            if not executed:
                self._end(order, executed=False)
                return
            self.shop.created.add(order)
            self.shop.later(DYNAMODB_SECONDS + until_confirm(), confirm)

        def confirm() -> None:
            self.shop.request(CONFIRM, lambda executed: self._end(order, executed=executed))

        self.shop.later(seconds + 2 * DYNAMODB_SECONDS, claimed)

    def _end(self, order: int, *, executed: bool) -> None:
        if executed:
            self.shop.finished += 1
        else:
            self.shop.back_off(order)
        self.unfinished -= 1
        if self.unfinished == 0:
            self.shop.billed_seconds += self.shop.now + DYNAMODB_SECONDS - self.begun_at
            self.shop.later(DYNAMODB_SECONDS + POLL_SECONDS, self.poll)
