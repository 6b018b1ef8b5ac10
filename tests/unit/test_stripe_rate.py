"""Stripe's rate limit: a lone batch never waits, a backlog uses the limit, a wait ends with the deadline."""

import heapq
import random
from itertools import repeat

import pytest

from onecharge.payments.stripe_rate import TokenBucket, share
from onecharge.runtime.aws import BATCH_SIZE
from tests.support.harness import load_template

RATES = {int(rate): each["Concurrency"] for rate, each in load_template()["Mappings"]["ChargesPerSecond"].items()}
RECORD_SECONDS = 20
"""How long a record may wait for a token, about."""


class Clock:
    """A time that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def bucket(clock: Clock, per_second: float = 5) -> TokenBucket:
    return TokenBucket(per_second, clock=clock, sleep=clock.sleep)


def test_a_batch_does_not_wait_and_the_next_request_waits_for_its_token() -> None:
    """The bucket holds a batch; after it, the requests are as far apart as the rate says."""
    clock = Clock()
    shared, begin = bucket(clock), clock.now
    assert all(shared.take(clock.now + 60) for _ in range(BATCH_SIZE))
    assert clock.now == begin
    assert [shared.take(clock.now + 60), shared.take(clock.now + 60)] == [True, True]
    assert clock.now == pytest.approx(begin + 0.4)


@pytest.mark.parametrize("idle_seconds", [0, 3600])
def test_a_token_after_the_deadline_is_neither_taken_nor_waited_for(idle_seconds: int) -> None:
    """The record is released, and the token is left to others. An idle bucket holds no more than a batch."""
    clock = Clock()
    shared = bucket(clock)
    clock.now += idle_seconds
    begin = clock.now
    assert [shared.take(clock.now) for _ in range(BATCH_SIZE + 1)] == [True] * BATCH_SIZE + [False]
    assert clock.now == begin
    clock.now += 0.2
    assert shared.take(clock.now)


@pytest.mark.parametrize("per_second", RATES)
@pytest.mark.parametrize("is_even", [True, False])
def test_a_backlog_uses_the_limit_with_even_and_uneven_latencies(per_second: int, *, is_even: bool) -> None:
    """At least 85 % of it, and no record waits past its deadline: nothing is dead-lettered."""
    count, seeded = RATES[per_second], random.Random(1)
    latencies = repeat(0.3) if is_even else iter(lambda: min(2.0, seeded.expovariate(2.5)), None)
    clocks = [Clock() for _ in range(count)]
    rates = [[bucket(clock, share(per_second, count)) for _ in ("create", "confirm")] for clock in clocks]

    def sent(worker: int, endpoint: int, at: float) -> float:
        """When a request is answered that is ready at this time. Each record of a batch has a thread of its own."""
        clocks[worker].now = at
        assert rates[worker][endpoint].take(at + RECORD_SECONDS), "the record is released"
        return clocks[worker].now + next(latencies)

    begin, ideal_seconds = clocks[0].now, 200
    free = [(begin, worker) for worker in range(count)]
    for _ in range(per_second * ideal_seconds // BATCH_SIZE):
        at, worker = heapq.heappop(free)
        created = [sent(worker, 0, at) for _ in range(BATCH_SIZE)]
        heapq.heappush(free, (max(sent(worker, 1, at) for at in sorted(created)), worker))
    assert ideal_seconds / (max(free)[0] - begin) >= 0.85
