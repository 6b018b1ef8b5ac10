"""Stripe's rate limit: a lone batch never waits, a backlog uses the limit, a wait ends with the deadline."""

import heapq
import random
from collections.abc import Callable

import pytest

from onecharge.payments.stripe_rate import TokenBucket, share
from onecharge.runtime.aws import BATCH_SIZE
from tests.support.harness import load_template

RATES = {int(rate): each["Concurrency"] for rate, each in load_template()["Mappings"]["ChargesPerSecond"].items()}
BACKLOG_SECONDS = 200
"""How long the backlog would take at Stripe's limit."""
RECORD_SECONDS = 20
"""How long a record may wait for a token, about."""


class Clock:
    """A time that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def bucket(clock: Clock, per_second: float = 5) -> TokenBucket:
    return TokenBucket(per_second, clock=clock, sleep=clock.sleep)


def test_a_batch_does_not_wait_and_the_next_request_waits_for_its_token() -> None:
    """The bucket holds a batch; after it, the requests are as far apart as the rate says."""
    clock = Clock()
    shared = bucket(clock)
    assert all(shared.take(clock.now + 60) for _ in range(BATCH_SIZE + 2))
    assert clock.slept == pytest.approx([0.2, 0.2])


def test_a_token_after_the_deadline_is_neither_taken_nor_waited_for() -> None:
    """The record is released, and the token is left to others."""
    clock = Clock()
    shared = bucket(clock)
    assert [shared.take(clock.now) for _ in range(BATCH_SIZE + 1)] == [True] * BATCH_SIZE + [False]
    assert clock.slept == []
    clock.now += 0.2
    assert shared.take(clock.now)


def test_the_bucket_is_full_again_after_a_while() -> None:
    """And holds no more than a batch then."""
    clock = Clock()
    shared = bucket(clock)
    for _ in range(BATCH_SIZE):
        shared.take(clock.now)
    clock.now += 3600
    assert [shared.take(clock.now) for _ in range(BATCH_SIZE + 1)] == [True] * BATCH_SIZE + [False]


def used(per_second: int, latency: Callable[[], float]) -> float:
    """The share of Stripe's limit that a backlog uses; `latency` is how long a request takes."""
    count = RATES[per_second]
    clocks = [Clock() for _ in range(count)]
    rates = [[bucket(clock, share(per_second, count)) for _ in ("create", "confirm")] for clock in clocks]

    def sent(worker: int, endpoint: int, at: float) -> float:
        """When a request is answered that is ready at this time. Each record of a batch has a thread of its own."""
        clocks[worker].now = at
        assert rates[worker][endpoint].take(at + RECORD_SECONDS), "the record is released"
        return clocks[worker].now + latency()

    begin = clocks[0].now
    free = [(begin, worker) for worker in range(count)]
    for _ in range(per_second * BACKLOG_SECONDS // BATCH_SIZE):
        at, worker = heapq.heappop(free)
        created = [sent(worker, 0, at) for _ in range(BATCH_SIZE)]
        heapq.heappush(free, (max(sent(worker, 1, at) for at in sorted(created)), worker))
    return BACKLOG_SECONDS / (max(free)[0] - begin)


@pytest.mark.parametrize("per_second", RATES)
def test_a_backlog_uses_the_limit_with_even_and_uneven_latencies(per_second: int) -> None:
    """At least 85 % of it, and no record waits past its deadline: nothing is dead-lettered."""
    seeded = random.Random(1)
    assert used(per_second, lambda: 0.3) >= 0.85
    assert used(per_second, lambda: min(2.0, seeded.expovariate(2.5))) >= 0.85
