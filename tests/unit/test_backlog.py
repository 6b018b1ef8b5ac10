"""After an outage of Stripe the backlog shrinks: the real slots, with a modelled queue, clock and Stripe."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from onecharge.payments.instruments import Instruments
from onecharge.payments.stripe_limit import SharedRate, Turns
from onecharge.runtime.aws import BATCH_SIZE
from onecharge.runtime.consumer import backoff_seconds
from republish.waiting import FIRST_WAIT_SECONDS
from testing.builders import BOUNDS, T0
from testing.silent import SILENT
from testing.simulation.dynamodb import MemoryDynamoDB

MINUTE, HOUR = 60, 3600
RATE = 0.95
"""Orders a second that may begin, of a limit of one: the sizes of a small shop, for a fast test."""
LOAD = 0.7
"""Orders a second that are placed: three quarters of what Stripe takes, during the outage and after it."""
OUTAGE_SECONDS = 30 * MINUTE
RECORD_SECONDS = 0.6
WORKERS = 3
INVOCATION_SECONDS = BOUNDS.function_timeout_seconds


@dataclass
class Shop:
    """A queue, its workers, and republications of what waits. Times are seconds since the outage began.

    A delivery claims its order, takes a slot, asks Stripe: in this order, unless `slots_first`. That the deployed code
    has this order is shown in test_stripe_limit.py.
    """

    slots_first: bool = False
    now: float = 0
    queue: list[tuple[float, int, int]] = field(default_factory=list)
    """Of each message: when it is visible, its order, how often it was received."""
    charged: set[int] = field(default_factory=set)
    leased_until: dict[int, float] = field(default_factory=dict)
    placed: int = 0
    slots: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    def __post_init__(self) -> None:
        dynamodb: Any = MemoryDynamoDB(keys={"limits": ("name",)})
        instruments = Instruments(lambda: T0 + self.now, SILENT, SILENT)
        self._instruments = instruments
        # Each worker has its own, as each execution environment: they meet in the item alone.
        self._rates = [
            SharedRate(dynamodb, "limits", "charge_order", rate=RATE, instruments=instruments) for _ in range(WORKERS)
        ]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        for worker in range(WORKERS):
            self._later(worker / WORKERS, partial(self._poll, worker))
        self._later(0, self._place)

    @property
    def backlog(self) -> int:
        """Orders that are placed and not charged."""
        return self.placed - len(self.charged)

    def run(self, until: float) -> int:
        """Go on until this time; returns the backlog."""
        while self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self.backlog

    def _later(self, seconds: float, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now + seconds, self._number, event))

    def _place(self) -> None:
        order = self.placed
        self.placed += 1
        self._send(order)
        self._later(FIRST_WAIT_SECONDS, lambda: self._republish(order, FIRST_WAIT_SECONDS))
        self._later(1 / LOAD, self._place)

    def _republish(self, order: int, waited_seconds: float) -> None:
        """Again whenever it has waited twice as long."""
        if order not in self.charged:
            self._send(order)
            self._later(waited_seconds, lambda: self._republish(order, 2 * waited_seconds))

    def _send(self, order: int, *, after_seconds: float = 0, receives: int = 0) -> None:
        heapq.heappush(self.queue, (self.now + after_seconds, order, receives))

    def _back_off(self, order: int, receives: int) -> None:
        self._send(order, after_seconds=backoff_seconds(receives, jitter=self.chance.random()), receives=receives)

    # ------------------------------------------------------------ a worker

    def _poll(self, worker: int) -> None:
        begin_until, lasts = T0 + self.now + INVOCATION_SECONDS - BOUNDS.record_seconds, 0.1
        # One record after another: none waits for the others.
        turns = Turns(self._rates[worker], self._instruments, at_once=0, begin_until=begin_until, sleep=lambda _: None)
        for _ in range(BATCH_SIZE):
            if not self.queue or self.queue[0][0] > self.now:
                break
            _, order, receives = heapq.heappop(self.queue)
            lasts = max(lasts, self._deliver(turns, order, receives + 1))
        self._later(lasts, lambda: self._poll(worker))

    def _deliver(self, turns: Turns, order: int, receives: int) -> float:
        """For how many seconds the delivery lasts."""
        waits_seconds = self._begin(turns) if self.slots_first else 0
        if waits_seconds is None:
            self._back_off(order, receives)
        elif order in self.charged:
            pass  # A duplicate of a final row: the message is deleted.
        elif self.leased_until.get(order, 0) > self.now:
            self._send(order, after_seconds=self.leased_until[order] + 1 - self.now, receives=receives)
        else:
            if not self.slots_first:
                waits_seconds = self._begin(turns)
            if waits_seconds is None or self.now + waits_seconds < OUTAGE_SECONDS:
                self._back_off(order, receives)
            else:
                self.leased_until[order] = self.now + waits_seconds + RECORD_SECONDS
                self._later(waits_seconds + RECORD_SECONDS, lambda: self.charged.add(order))
                return waits_seconds + RECORD_SECONDS
        return (waits_seconds or 0) + 0.01

    def _begin(self, turns: Turns) -> float | None:
        seconds = turns.turn().begin()
        self.slots += seconds is not None
        return seconds


def test_after_an_outage_the_backlog_shrinks() -> None:
    """By nearly all that Stripe takes beyond what is placed, though each order was republished meanwhile."""
    shop = Shop()
    waiting = shop.run(OUTAGE_SECONDS)
    assert waiting > 0.99 * LOAD * OUTAGE_SECONDS
    for hours in (0.5, 1):
        left = shop.run(OUTAGE_SECONDS + hours * HOUR)
        assert waiting - left > 0.8 * (RATE - LOAD) * hours * HOUR


def test_it_would_grow_if_duplicates_took_slots() -> None:
    """What the model shows of slots before the claim: no fewer are taken, and messages that need none use them up."""
    shop = Shop(slots_first=True)
    shop.run(OUTAGE_SECONDS)
    after_an_hour, slots = shop.run(OUTAGE_SECONDS + HOUR), shop.slots
    assert shop.run(OUTAGE_SECONDS + 1.75 * HOUR) > after_an_hour
    assert shop.slots - slots > 0.95 * RATE * 0.75 * HOUR
