"""Every duration that the charge protocol depends on, derived in one place from the function's timeout.

    one try at Stripe x tries  <  one record  <  function timeout  <  lease  <  visibility timeout (template.yaml, 6 x)

A lease that outlives the function means that whoever takes it over finds its former holder dead, not slow.
"""

from dataclasses import dataclass

STRIPE_RETRIES = 1
"""How often the SDK itself sends a request again, with the same key: once, for a connection that had gone stale.
Everything beyond that is the queue's business, which waits without being billed."""

KEY_HORIZON_SECONDS = 23 * 3600
"""Stripe may forget an idempotency key once it is 24 h old (Stripe documentation, "Idempotent requests"). An hour
before that the key is no longer relied on: Stripe is looked at first."""

SEARCH_LAG_SECONDS = 3600
"""How far Stripe's search may lag behind (Stripe documentation, "Search": up to an hour during outages)."""

ABSENCE_GRACE_SECONDS = 900
"""How long a charge that Stripe does not show must stay absent before another key is opened: an earlier request
that Stripe answered with a 500 may still take effect."""

CLOCK_DIFFERENCE_SECONDS = 300
"""How far the clocks of two machines may differ before what they say is not believed."""

RETENTION_SECONDS = 400 * 24 * 3600
"""How long a row is kept: beyond SNS's 23 days of retries, the 14 days of a queue and of its DLQ, and the time in which
cardholders usually dispute a charge. Past it no message about the order is left anywhere."""

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
    """What one record needs at the most: with less time left, it is handed back instead of being cut off halfway."""

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
            # The margin is for clocks that differ between two machines.
            lease_seconds=function_timeout_seconds + _LEASE_MARGIN_SECONDS,
            record_seconds=record_seconds,
        )
