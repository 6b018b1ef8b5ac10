"""Faults on order: which requests meet which one, and how often."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from local.stripe_standin.engine import Request


class Fault(StrEnum):
    """What can go wrong; `_before` and `_after` are seen from the instant at which the charge happens."""

    ERROR_500_BEFORE = "error_500_before"
    """500 without a charge; Stripe remembers the 500."""
    ERROR_500_AFTER = "error_500_after"
    """The charge happens, the answer is 500, and the 500 is what Stripe remembers."""
    DROP_BEFORE = "drop_before"
    """The connection is closed; nothing has happened, nothing is remembered."""
    DROP_AFTER = "drop_after"
    """The charge happens, the connection is closed; the true answer is remembered."""
    HANG_BEFORE = "hang_before"
    """Nothing happens, and nothing is said for `seconds`; then the connection is closed."""
    HANG_AFTER = "hang_after"
    """The charge happens, and the answer trickles byte by byte for `seconds`, so that no read timeout ends it."""
    SILENT_AFTER = "silent_after"
    """The charge happens, and nothing is said for `seconds`; a read timeout ends it."""
    RATE_LIMIT_429 = "rate_limit_429"
    UNAVAILABLE_503 = "unavailable_503"
    UNAUTHORIZED_401 = "unauthorized_401"
    LATENCY = "latency"
    """All is well, `seconds` later."""


UNSTARTED = frozenset(
    {Fault.DROP_BEFORE, Fault.HANG_BEFORE, Fault.RATE_LIMIT_429, Fault.UNAVAILABLE_503, Fault.UNAUTHORIZED_401}
)
"""Faults that meet a request before Stripe looks its key up, so that they meet a replay as well."""


@dataclass
class FaultRule:
    """A fault for the requests that match: past the first `skip`, for `times` of them (None: for all)."""

    kind: Fault
    match: Mapping[str, str] = field(default_factory=dict)
    """Parameters that the request must have: `{"amount": "4711"}`, `{"metadata[order_id]": "…"}`; {} for any."""
    times: int | None = 1
    skip: int = 0
    seconds: float = 120.0
    method: str = "POST"
    path: str = "/v1/payment_intents"
    """With * for any part: "/v1/payment_intents/*/confirm"."""
    hits: int = 0

    @classmethod
    def from_json(cls, rule: Mapping[str, Any]) -> "FaultRule":
        return cls(**{**rule, "kind": Fault(rule["kind"]), "hits": 0})

    def applies_to(self, request: Request) -> bool:
        return (
            request.method == self.method
            and fnmatchcase(request.path, self.path)
            and self.match.items() <= request.parameters.items()
            and (self.times is None or self.hits < self.skip + self.times)
        )


class FaultPlan:
    """The rules in force; the first that applies is the one that a request meets."""

    def __init__(self) -> None:
        self.rules: list[FaultRule] = []

    def meet(self, request: Request, *, unstarted: bool) -> FaultRule | None:
        """The fault that this request meets before it is started, or while it is executed; counted as met."""
        for rule in self.rules:
            if (rule.kind in UNSTARTED) is unstarted and rule.applies_to(request):
                rule.hits += 1
                return rule if rule.hits > rule.skip else None
        return None
