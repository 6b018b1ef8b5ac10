"""Faults on order: which requests meet which one, and how often."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from local.stripe_standin.errors import ApiError
from local.stripe_standin.messages import Request, Response


class Fault(StrEnum):
    """What can go wrong; `_before` and `_after` are seen from the instant at which the charge happens."""

    ERROR_500_BEFORE = "error_500_before"
    """500 without a charge; Stripe remembers the 500."""
    ERROR_500_AFTER = "error_500_after"
    """The charge happens, the answer is 500, and the 500 is what Stripe remembers."""
    ERROR_500_LATER = "error_500_later"
    """500, which Stripe remembers; the charge happens `seconds` later, whatever has happened until then."""
    BAD_GATEWAY_502 = "bad_gateway_502"
    UNAVAILABLE_503 = "unavailable_503"
    GATEWAY_TIMEOUT_504 = "gateway_timeout_504"
    DEPENDENCY_FAILED_424 = "dependency_failed_424"
    LOCK_TIMEOUT_429 = "lock_timeout_429"
    """Another request is at work on the same object."""
    RATE_LIMIT_429 = "rate_limit_429"
    RATE_LIMIT_400 = "rate_limit_400"
    """A rate limit of one object, which Stripe answers with a 400."""
    UNAUTHORIZED_401 = "unauthorized_401"
    FORBIDDEN_403 = "forbidden_403"
    """A restricted key without this permission."""
    ANSWER = "answer"
    """Any answer: the rule's `status` and `error`."""
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
    LATENCY = "latency"
    """All is well, `seconds` later; until then the key is in use."""
    STAYS_PROCESSING = "stays_processing"
    """A confirm leaves the PaymentIntent `processing`, until an admin call decides it."""


class Executed(StrEnum):
    """Whether a request that is answered with an error is executed all the same."""

    NEVER = "never"
    NOW = "now"
    LATER = "later"


@dataclass(frozen=True)
class FaultyAnswer:
    """An error in the place of the true answer. Unless it is `stored`, its key remembers nothing of the request."""

    status: int
    message: str = "An unknown error occurred."
    type: str = "api_error"
    code: str | None = None
    stored: bool = False
    executed: Executed = Executed.NEVER
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def response(self) -> Response:
        return Response(self.status, ApiError(self.status, self.type, self.message, code=self.code).body, self.headers)


_INVALID = "invalid_request_error"
_NO_RETRY = {"Stripe-Should-Retry": "false"}
_ANSWERS: Mapping[Fault, FaultyAnswer] = {
    Fault.ERROR_500_BEFORE: FaultyAnswer(500, stored=True, headers=_NO_RETRY),
    Fault.ERROR_500_AFTER: FaultyAnswer(500, stored=True, executed=Executed.NOW, headers=_NO_RETRY),
    Fault.ERROR_500_LATER: FaultyAnswer(500, stored=True, executed=Executed.LATER, headers=_NO_RETRY),
    Fault.BAD_GATEWAY_502: FaultyAnswer(502, "Bad gateway."),
    Fault.UNAVAILABLE_503: FaultyAnswer(503, "Stripe is unavailable."),
    Fault.GATEWAY_TIMEOUT_504: FaultyAnswer(504, "Gateway timeout."),
    Fault.DEPENDENCY_FAILED_424: FaultyAnswer(424, "A dependency external to Stripe failed."),
    Fault.LOCK_TIMEOUT_429: FaultyAnswer(
        429,
        "This object cannot be accessed right now because another API request or Stripe process is currently accessing "
        "it.",
        _INVALID,
        "lock_timeout",
    ),
    Fault.RATE_LIMIT_429: FaultyAnswer(
        429, "Too many requests.", _INVALID, "rate_limit", headers={"Stripe-Rate-Limited-Reason": "endpoint-rate"}
    ),
    Fault.RATE_LIMIT_400: FaultyAnswer(400, "Too many requests for this object.", _INVALID, "rate_limit"),
    Fault.UNAUTHORIZED_401: FaultyAnswer(401, "Invalid API Key provided.", _INVALID),
    Fault.FORBIDDEN_403: FaultyAnswer(
        403, "The provided key does not have the required permissions for this endpoint.", _INVALID
    ),
    Fault.ANSWER: FaultyAnswer(500),
}


@dataclass
class FaultRule:
    """A fault for the requests that match: past the first `skip`, for `times` of them (None: for all)."""

    kind: Fault
    match: Mapping[str, str] = field(default_factory=dict)
    """Parameters that the request must have, or that the PaymentIntent which its path names was created with:
    `{"amount": "4711"}`, `{"metadata[order_id]": "…"}`; {} for any."""
    times: int | None = 1
    skip: int = 0
    seconds: float = 120.0
    method: str = "POST"
    path: str = "/v1/payment_intents"
    """With * for any part: "/v1/payment_intents/*/confirm"."""
    stored: bool | None = None
    """Of an answer: whether it is stored under the key, and so replayed; None is as usual for the kind."""
    executed: Executed | None = None
    """Of an answer: whether the request is executed all the same; None is as usual for the kind."""
    status: int | None = None
    error: Mapping[str, str] = field(default_factory=dict)
    """Of Fault.ANSWER: its `message`, `type` and `code`."""
    hits: int = 0

    @classmethod
    def from_json(cls, rule: Mapping[str, Any]) -> "FaultRule":
        executed = rule.get("executed")
        given = {"kind": Fault(rule["kind"]), "executed": Executed(executed) if executed else None, "hits": 0}
        return cls(**{**rule, **given})

    @property
    def answer(self) -> FaultyAnswer | None:
        """The error that stands in the place of the true answer, if the fault is one."""
        usual = _ANSWERS.get(self.kind)
        if usual is None:
            return None
        chosen = {"stored": self.stored, "executed": self.executed, "status": self.status, **self.error}
        return FaultyAnswer(**{**vars(usual), **{name: value for name, value in chosen.items() if value is not None}})

    @property
    def unstarted(self) -> bool:
        """Whether it meets a request before Stripe looks its key up, so that it meets a replay as well."""
        if self.answer is not None:
            return not self.answer.stored and self.answer.executed is Executed.NEVER
        return self.kind in (Fault.DROP_BEFORE, Fault.HANG_BEFORE)

    def applies_to(self, request: Request, about: Mapping[str, str]) -> bool:
        return (
            request.method == self.method
            and fnmatchcase(request.path, self.path)
            and self.match.items() <= {**about, **request.parameters}.items()
            and (self.times is None or self.hits < self.skip + self.times)
        )


class FaultPlan:
    """The rules in force; the first that applies is the one that a request meets."""

    def __init__(self) -> None:
        self.rules: list[FaultRule] = []

    def meet(self, request: Request, *, unstarted: bool, about: Mapping[str, str]) -> FaultRule | None:
        """The fault that this request meets before it is started, or while it is executed; counted as met.

        Args:
            about: of the PaymentIntent that the path names, its amount, currency and metadata as parameters.
        """
        for rule in self.rules:
            if rule.unstarted is unstarted and rule.applies_to(request, about):
                rule.hits += 1
                return rule if rule.hits > rule.skip else None
        return None
