"""Rate limits, off unless they are set. Source: Stripe documentation, "Rate limits"."""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from local.stripe_standin.messages import Request

ENDPOINT_RATE = "endpoint-rate"
GLOBAL_RATE = "global-rate"


@dataclass
class RateLimits:
    """How many requests are let in within one second: of one endpoint, and of the account."""

    clock: Callable[[], float]
    per_endpoint: int | None = None
    per_account: int | None = None
    _admitted: defaultdict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))

    def reason_to_refuse(self, account_id: str, request: Request) -> str | None:
        """What Stripe-Rate-Limited-Reason says; None lets the request in, and counts it."""
        counted = [
            (f"{account_id} {request.endpoint}", self.per_endpoint, ENDPOINT_RATE),
            (account_id, self.per_account, GLOBAL_RATE),
        ]
        for what, limit, reason in counted:
            if limit is not None and self._within_a_second(what) >= limit:
                return reason
        for what, limit, _ in counted:
            if limit is not None:
                self._admitted[what].append(self.clock())
        return None

    def _within_a_second(self, what: str) -> int:
        admitted, now = self._admitted[what], self.clock()
        while admitted and admitted[0] <= now - 1:
            admitted.popleft()
        return len(admitted)
