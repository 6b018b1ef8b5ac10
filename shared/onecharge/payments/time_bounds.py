"""The durations of the payment service: what follows from the function's timeout, and what Stripe's limits ask for.

    one try at Stripe x tries  <  one record  <  function timeout  <  lease  <  visibility timeout (template.yaml, 6 x)

Since a lease outlives the function, the previous owner has ended when the next one claims the row. These bounds save
time and cost. The promise depends on FUTURE_MAX_SECONDS, CREATE_SECONDS (charge_rules.py) and
SENT_AGAIN_SECONDS (refund_rules.py).
"""

from dataclasses import dataclass

STRIPE_RETRIES = 1
"""How often the SDK itself repeats a request, with the same key: once, after a dropped connection, a time-out, a 409,
or a 5xx without `Stripe-Should-Retry: false`. Further retries are the queue's: while a message waits, no function is
billed."""

FUTURE_MAX_SECONDS = 3600
"""How far in the future an order may have been placed, by the clock of the worker that reads it: as far as clocks may
differ. A later time would let its PaymentIntent be created after Stripe has forgotten its keys."""

RETENTION_SECONDS = 500 * 24 * 3600
"""How long a row is kept after its last outcome. Its order is kept 30 days longer; an unfinished row, always."""

_START_SECONDS, _DYNAMODB_SECONDS, _PAUSE_SECONDS = 4, 3, 1
_LEASE_MARGIN_SECONDS = 5
"""For small clock differences; with larger ones two workers work at the same time, and charge once."""


@dataclass(frozen=True)
class TimeBounds:
    """The bounds that follow from a function's timeout.

    Raises ValueError if it is too short to wait for one response of Stripe.
    """

    function_timeout_seconds: int

    def __post_init__(self) -> None:
        if self.request_seconds < 2:
            raise ValueError(f"a function timeout of {self.function_timeout_seconds} s is too short")

    @property
    def lease_seconds(self) -> int:
        return self.function_timeout_seconds + _LEASE_MARGIN_SECONDS

    @property
    def record_seconds(self) -> int:
        """How long one record takes at most."""
        return self.function_timeout_seconds - _START_SECONDS

    @property
    def request_seconds(self) -> float:
        """How long one try of one request to Stripe takes at most."""
        return (self.record_seconds - _DYNAMODB_SECONDS - _PAUSE_SECONDS) / (STRIPE_RETRIES + 1)

    @property
    def stripe_timeouts(self) -> tuple[float, float]:
        """To connect to Stripe, and to read its response; seconds."""
        return self.request_seconds / 4, self.request_seconds * 3 / 4

    def deadline(self, started_at: float) -> float:
        """After when a record that began at `started_at` begins no further request to Stripe; epoch seconds.

        There is time left for one try. A deadline with room for the SDK's retry as well would be after 3 of 30 seconds:
        if Stripe took 4 s for each request, each worker would retrieve and none would confirm.
        """
        return started_at + self.record_seconds - self.request_seconds
