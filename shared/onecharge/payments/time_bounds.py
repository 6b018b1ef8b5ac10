"""The durations of the charge protocol: what follows from the function's timeout, and what Stripe's limits ask for.

    one try at Stripe x tries  <  one record  <  function timeout  <  lease  <  visibility timeout (template.yaml, 6 x)

A lease that outlives the function means that the former owner has ended when the next one claims the row. These bounds
save time and cost. No promise about money depends on them, except for the 22 hours and
a lookup's margins (SEARCH_LAG_SECONDS, FUTURE_MAX_SECONDS).

Elsewhere: RequiresActionSeconds (template.yaml), BACKOFF_CAP_SECONDS (runtime/consumer.py), REEMIT_AFTER_SECONDS
(deliveries.py), UNATTENDED_SECONDS (sync.py).
"""

from dataclasses import dataclass

STRIPE_RETRIES = 1
"""How often the SDK itself repeats a request, with the same key: once, after a dropped connection, a time-out, a 409,
or a 5xx without `Stripe-Should-Retry: false`. Further retries are the queue's: while a message waits, no function is
billed."""

LOOKUP_AGE_SECONDS = 22 * 3600
"""Stripe may remove an idempotency key once it is 24 h old (Stripe documentation, "Idempotent requests"). If an
order is this old, its other PaymentIntents are looked up before a new one is used. Of the two hours between, one is for
the clock that set `placed_at`, and one for the clock that reads it a day later: they may be wrong in opposite
directions."""

SEARCH_LAG_SECONDS = 3600
"""How far Stripe's search may lag behind (Stripe documentation, "Search": up to an hour during outages). What is
younger is read from the list, which is immediate."""

FUTURE_MAX_SECONDS = 3600
"""How far in the future an order may have been placed, by the clock of the worker that reads it: as far as clocks may
differ. A later time would switch the lookup off until then."""

REFUSED_SECONDS = 3600
"""How long a request that Stripe refuses as invalid is retried before it is NEEDS_REVIEW."""

OVERDUE_SECONDS = 24 * 3600
"""How long an attempt or a cancellation may stay unfinished before it is an alarm: retries do not count anew."""

RETENTION_SECONDS = 500 * 24 * 3600
"""A row's time to live after its last final state. The order outlives it by 30 days: if it asks again, it is old enough
to be looked up at Stripe. An unfinished row does not expire."""

_START_RESERVE_SECONDS = 4.0
_DYNAMODB_RESERVE_SECONDS = 3.0
_PAUSE_SECONDS = 1.0
_LEASE_MARGIN_SECONDS = 5


@dataclass(frozen=True)
class TimeBounds:
    """The bounds of one deployment; `TimeBounds.of(30)` for a function with a timeout of 30 s."""

    function_timeout_seconds: int
    stripe_connect_timeout_seconds: float
    stripe_read_timeout_seconds: float
    lease_seconds: int
    record_seconds: float
    """How long one record takes at most: with less time left it is returned to the queue unprocessed."""
    request_seconds: float
    """How long one try of one request to Stripe takes at most."""

    def deadline(self, started_at: float) -> float:
        """After when a record that began at `started_at` begins no further request to Stripe; epoch seconds.

        There is time left for one try, not for the SDK's retry as well. A deadline with room for both would be after 3
        of 30 seconds: if Stripe took 4 s for each request, each worker would retrieve and none would confirm. The
        function's timeout ends only a worker that begins a request late and meets two timeouts in a row; that costs a
        lease, and the next worker continues under the same keys.
        """
        return started_at + self.record_seconds - self.request_seconds

    @classmethod
    def of(cls, function_timeout_seconds: int) -> "TimeBounds":
        """Raises ValueError if the function's timeout is too short to wait for one response of Stripe."""
        tries = STRIPE_RETRIES + 1
        record_seconds = function_timeout_seconds - _START_RESERVE_SECONDS
        one_try = (record_seconds - _DYNAMODB_RESERVE_SECONDS - _PAUSE_SECONDS) / tries
        if one_try < 2:
            raise ValueError(f"a function timeout of {function_timeout_seconds} s is too short")
        return cls(
            function_timeout_seconds=function_timeout_seconds,
            stripe_connect_timeout_seconds=one_try / 4,
            stripe_read_timeout_seconds=one_try * 3 / 4,
            # The margin is for small clock differences; with larger ones two workers work at once, and charge once.
            lease_seconds=function_timeout_seconds + _LEASE_MARGIN_SECONDS,
            record_seconds=record_seconds,
            request_seconds=one_try,
        )
