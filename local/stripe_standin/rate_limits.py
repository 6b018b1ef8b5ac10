"""Rate limits, off by default. Source: Stripe documentation, "Rate limits"."""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from local.stripe_standin.messages import Request

ENDPOINT_RATE = "endpoint-rate"
GLOBAL_RATE = "global-rate"


@dataclass
class RateLimits:
    """Requests per second that are admitted, for one endpoint and for the account. None: no limit."""

    clock: Callable[[], float]
    per_endpoint: int | None = None
    per_account: int | None = None
    _admitted: defaultdict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))

    def reason_to_refuse(self, account_id: str, request: Request) -> str | None:
        """The value of Stripe-Rate-Limited-Reason; None admits and counts the request."""
        limits = [
            (f"{account_id} {request.endpoint}", self.per_endpoint, ENDPOINT_RATE),
            (account_id, self.per_account, GLOBAL_RATE),
        ]
        for name, limit, reason in limits:
            if limit is not None and self._admitted_within_a_second(name) >= limit:
                return reason
        for name, limit, _ in limits:
            if limit is not None:
                self._admitted[name].append(self.clock())
        return None

    def _admitted_within_a_second(self, name: str) -> int:
        admitted, now = self._admitted[name], self.clock()
        while admitted and admitted[0] <= now - 1:
            admitted.popleft()
        return len(admitted)
