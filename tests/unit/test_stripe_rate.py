"""Stripe's rate limit: a lone batch never waits, a backlog uses the limit, a wait ends with the deadline."""

import pytest

from onecharge.payments.stripe_rate import TokenBucket, share
from onecharge.runtime.aws import BATCH_SIZE
from tests.support.harness import load_template


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


def test_the_workers_share_most_of_the_limit() -> None:
    """The rest is for retries. Each rate that template.yaml offers has its number of workers."""
    for limit, each in load_template()["Mappings"]["ChargesPerSecond"].items():
        workers = each["Concurrency"]
        assert 0.9 < workers * share(int(limit), workers) / int(limit) < 1
