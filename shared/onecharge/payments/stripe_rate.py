"""Keeps this process within its share of Stripe's rate limit: a token bucket for each endpoint that moves money.

Stripe limits each endpoint (25 requests a second in live mode, until it raises your limit), not each caller. The
workers share that limit evenly. A lone batch never waits, since the bucket holds a batch. In the first second of a
backlog some requests are answered with 429: harmless, since Stripe executes nothing.
"""

import threading
import time
from collections.abc import Callable

from onecharge.runtime.aws import BATCH_SIZE


class TokenBucket:
    """A batch of requests immediately, then `per_second`. Used on several threads."""

    def __init__(
        self,
        per_second: float,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second, self._clock, self._sleep = per_second, clock, sleep
        self._lock = threading.Lock()
        self._tokens, self._counted_at = float(BATCH_SIZE), clock()

    def take(self, until: float) -> bool:
        """Wait for a token; False, without waiting, if there is none until then (epoch seconds)."""
        with self._lock:
            now = self._clock()
            tokens = min(BATCH_SIZE, self._tokens + max(0.0, now - self._counted_at) * self._per_second)
            # Below zero, the tokens of those who wait.
            wait_seconds = max(0.0, (1 - tokens) / self._per_second)
            is_in_time = now + wait_seconds <= until
            self._tokens, self._counted_at = (tokens - 1 if is_in_time else tokens), now
        if is_in_time and wait_seconds:
            self._sleep(wait_seconds)
        return is_in_time


class StripeRate:
    """The buckets of one process: each endpoint has a limit of its own."""

    def __init__(self, per_second: float) -> None:
        self.creates, self.confirms, self.refunds = (TokenBucket(per_second) for _ in range(3))


def share(per_second: float, workers: int) -> float:
    """One worker's share of a limit. The rest, 5 %, is for retries."""
    return 0.95 * per_second / workers
