"""Every duration of the charge protocol, derived in one place from the function's timeout.

    one try at Stripe x tries  <  one record  <  function timeout  <  lease  <  visibility timeout (template.yaml, 6 x)

A lease that outlives the function means that its next owner finds the former one dead, not slow. These bounds make
things fast and cheap. No promise about money rests on them, but for the 22 hours.
"""

from dataclasses import dataclass

STRIPE_RETRIES = 1
"""How often the SDK itself sends a request again, with the same key: once, for a connection that had gone stale.
Everything beyond that is the queue's business, which waits without being billed."""

LOOKUP_AGE_SECONDS = 22 * 3600
"""Stripe may forget an idempotency key once it is 24 h old (Stripe documentation, "Idempotent requests"). An order this
old that has no PaymentIntent is looked up first. Of the two hours between, one is for the clock that said when the
order was placed, and one for the clock that reads it a day later: they may be wrong in opposite directions."""

SEARCH_LAG_SECONDS = 3600
"""How far Stripe's search may lag behind (Stripe documentation, "Search": up to an hour during outages). What is
younger is read from the list, which is immediate."""

FUTURE_MAX_SECONDS = 3600
"""How far in the future an order may have been placed, by the clock of the worker that reads it: as far as clocks may
differ. A time further away would switch the lookup off for as long."""

REFUSED_SECONDS = 3600
"""How long a request that Stripe refuses as invalid is tried again before a person has to look."""

OVERDUE_SECONDS = 24 * 3600
"""How long an attempt or a cancellation may stay unfinished, however often it is tried again, before it is an alarm."""

RETENTION_SECONDS = 500 * 24 * 3600
"""A row's time to live after its last final state: longer than the order's (430 days after its last attempt), so that
whatever can still ask for a payment finds its row. A row that is not final has none, and does not expire."""

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
    """What one record needs at the most: with less time left it is returned to the queue, not cut off halfway."""
    request_seconds: float
    """What one try of one request to Stripe needs at the most."""

    def deadline(self, started_at: float) -> float:
        """When a record that was begun then begins no further request to Stripe: one that it could not wait for.

        One try is waited for, not the SDK's own retry as well. A bound with room for both would end after 3 of 30
        seconds: with a Stripe that takes 4 s for each request, a worker would retrieve and never confirm, as often as
        the message is delivered. Cut off by the function's timeout is only who begins late and is answered with two
        time-outs in a row; that costs a lease, and the next worker goes on under the same keys.
        """
        return started_at + self.record_seconds - self.request_seconds

    @classmethod
    def of(cls, function_timeout_seconds: int) -> "TimeBounds":
        """Raises ValueError if a function so short could not even wait for one answer of Stripe."""
        tries = STRIPE_RETRIES + 1
        record_seconds = function_timeout_seconds - _START_RESERVE_SECONDS
        one_try = (record_seconds - _DYNAMODB_RESERVE_SECONDS - _PAUSE_SECONDS) / tries
        if one_try < 2:
            raise ValueError(f"a function timeout of {function_timeout_seconds} s is too short")
        return cls(
            function_timeout_seconds=function_timeout_seconds,
            stripe_connect_timeout_seconds=one_try / 4,
            stripe_read_timeout_seconds=one_try * 3 / 4,
            # The margin is for clocks that differ by little; if they differ by more, two work at once, and charge once.
            lease_seconds=function_timeout_seconds + _LEASE_MARGIN_SECONDS,
            record_seconds=record_seconds,
            request_seconds=one_try,
        )
