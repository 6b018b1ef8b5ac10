"""Fault injection: which requests meet which fault, and how often."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from stripe_standin.errors import ApiError
from stripe_standin.messages import Request, Response


class Fault(StrEnum):
    """What can go wrong; `_before` and `_after` mean before and after the charge."""

    ERROR_500_BEFORE = "error_500_before"
    """500 without a charge; the key replays the 500."""
    ERROR_500_AFTER = "error_500_after"
    """500 after a charge; the key replays the 500."""
    UNAVAILABLE_503 = "unavailable_503"
    RATE_LIMIT_429 = "rate_limit_429"
    RESPONSE = "response"
    """The `status` and `error` of the rule; `stored` and `executed` say what else happens."""
    DROP_BEFORE = "drop_before"
    """The connection is closed; the request is not executed."""
    DROP_AFTER = "drop_after"
    """The connection is closed after the charge; the key replays the normal response."""
    HANG_AFTER = "hang_after"
    """After the charge the response trickles byte by byte for `seconds`: no read timeout expires."""
    LATENCY = "latency"
    """The normal response, `seconds` later; until then the key is in use."""
    OVERLAP = "overlap"
    """The normal response once `times` requests have met the fault, or `seconds` later."""
    STAYS_PROCESSING = "stays_processing"
    """A confirm leaves the PaymentIntent `processing`, until an admin call ends it."""
    CANCELED_BY_STRIPE = "canceled_by_stripe"
    """The confirm is one more than Stripe's limit: the PaymentIntent is canceled."""
    REFUND_PENDING = "refund_pending"
    """The refund stays `pending`."""
    BALANCE_TOO_LOW = "balance_too_low"
    """The refund is refused: `balance_insufficient`, which the key replays."""


class Executed(StrEnum):
    """Whether and when a request is executed although its response is an error."""

    NEVER = "never"
    NOW = "now"
    LATER = "later"


OUTCOMES = frozenset((Fault.STAYS_PROCESSING, Fault.CANCELED_BY_STRIPE, Fault.REFUND_PENDING, Fault.BALANCE_TOO_LOW))
"""How a request is executed, where its parameters leave that open. A `status` hides it behind a stored error."""
_LIMITED = {"type": "invalid_request_error", "code": "rate_limit", "message": "Too many requests."}
_DEFAULTS: Mapping[Fault, tuple[int, bool, Executed, Mapping[str, str]]] = {
    Fault.ERROR_500_BEFORE: (500, True, Executed.NEVER, {}),
    Fault.ERROR_500_AFTER: (500, True, Executed.NOW, {}),
    Fault.UNAVAILABLE_503: (503, False, Executed.NEVER, {"message": "Stripe is unavailable."}),
    Fault.RATE_LIMIT_429: (429, False, Executed.NEVER, _LIMITED),
    Fault.RESPONSE: (500, False, Executed.NEVER, {}),
}
"""Of an error response: the status, whether the key stores it, whether the request is executed, and the error."""
_HEADERS: Mapping[Fault, Mapping[str, str]] = {
    Fault.ERROR_500_BEFORE: {"Stripe-Should-Retry": "false"},
    Fault.ERROR_500_AFTER: {"Stripe-Should-Retry": "false"},
    Fault.RATE_LIMIT_429: {"Stripe-Rate-Limited-Reason": "endpoint-rate"},
}


@dataclass
class FaultRule:
    """A fault for the next `times` requests that match (None: for all)."""

    kind: Fault
    match: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the request, or of the request that created the PaymentIntent in its path: `{"amount": "4711"}`,
    `{"metadata[order_id]": "…"}`. {} matches every request."""
    times: int | None = 1
    seconds: float = 120.0
    method: str = "POST"
    path: str = "/v1/payment_intents"
    """* matches any part: "/v1/payment_intents/*/confirm"."""
    api_key: str | None = None
    """Only requests with this key; None: with any."""
    status: int | None = None
    stored: bool | None = None
    """For an error response: whether the key replays it. None: the default of the kind."""
    executed: Executed | None = None
    """For an error response: whether the request is executed. None: the default of the kind."""
    error: Mapping[str, str] = field(default_factory=dict)
    """For an error response: its `message`, `type` and `code`."""
    hits: int = 0

    def __post_init__(self) -> None:
        status, stored, executed, error = _DEFAULTS.get(self.kind, (None, True, Executed.NOW, {}))
        self.kind, self.status = Fault(self.kind), self.status or status
        self.stored = stored if self.stored is None else self.stored
        self.executed = Executed(self.executed or executed)
        self.error = {"type": "api_error", "message": "An unknown error occurred.", **error, **self.error}

    @property
    def error_response(self) -> Response | None:
        """The error instead of the normal response; None if the fault is of another kind."""
        if self.status is None:
            return None
        details: dict[str, Any] = {**self.error}
        error = ApiError(self.status, details.pop("type"), details.pop("message"), **details)
        return Response(self.status, error.body, _HEADERS.get(self.kind, {}))

    @property
    def outcome(self) -> Fault | None:
        return self.kind if self.kind in OUTCOMES else None

    @property
    def before_execution(self) -> bool:
        """Whether it happens before Stripe checks the idempotency key: then it happens instead of a replay too."""
        if self.status is not None:
            return not self.stored and self.executed is Executed.NEVER
        return self.kind is Fault.DROP_BEFORE

    def applies_to(self, request: Request, created_with: Mapping[str, str]) -> bool:
        return (
            request.method == self.method
            and fnmatchcase(request.path, self.path)
            and self.api_key in (None, request.api_key)
            and self.match.items() <= {**created_with, **request.parameters}.items()
            and (self.times is None or self.hits < self.times)
        )


class FaultPlan:
    """The injected rules. A request meets the first rule that applies to it."""

    def __init__(self) -> None:
        self.rules: list[FaultRule] = []

    def find(self, request: Request, *, before_execution: bool, created_with: Mapping[str, str]) -> FaultRule | None:
        """The fault that this request meets, before execution or during it; counts the hit.

        Args:
            created_with: the parameters that created the PaymentIntent in the path, if there is one.
        """
        for rule in self.rules:
            if rule.before_execution is before_execution and rule.applies_to(request, created_with):
                rule.hits += 1
                return rule
        return None
