"""Fault injection: at which of its opportunities a schedule's fault occurs."""

from collections.abc import Sequence
from dataclasses import dataclass

from greenlet import greenlet

from benchmarks.survival.faults import Fault, FaultKind
from benchmarks.survival.messaging import Message

_STRIPE_FAULTS = {
    FaultKind.CHARGE_UNANSWERED_ONCE: "drop after",
    FaultKind.CHARGE_UNANSWERED: "drop after",
    FaultKind.SERVER_ERROR_CHARGED: "500 after",
    FaultKind.SERVER_ERROR: "500 before",
    FaultKind.SERVER_ERROR_CHARGES_LATER: "500, executed later",
}
"""As the simulation's Stripe names them."""


@dataclass
class Worker:
    """One running invocation, in an execution environment of its own."""

    message: Message
    receipt_handle: str
    started_at: int
    run: greenlet
    label: str = "start"
    """Its next effect."""
    sleeps_until: int = 0
    killed_at_waking: bool = False
    cut_off_from_stripe: bool = False
    writes: int = 0


class FaultInjector:
    """A schedule's fault occurs once, at the opportunity with the number `at`; opportunities are counted from 0."""

    def __init__(self, fault: Fault, at: int | None) -> None:
        self._kind, self._at = fault.kind, at
        self.opportunities = 0
        self.occurred = fault.name == "nothing"

    def occurs(self) -> bool:
        """Count an opportunity; returns whether the fault occurs now."""
        occurs = self.opportunities == self._at
        self.opportunities += 1
        self.occurred |= occurs
        return occurs

    def in_request(self, request: str, possible: Sequence[str], worker: Worker) -> str | None:
        """The fault that a request to DynamoDB or Stripe meets, one of the possible ones; None if it meets none."""
        if "throttled" in possible and self._kind is FaultKind.THROTTLED:
            return "throttled" if self.occurs() else None
        if "answer lost" in possible and self._kind is FaultKind.WRITE_UNANSWERED and request != "dynamodb GetItem":
            return "answer lost" if self.occurs() else None
        if "drop after" in possible and self._kind in _STRIPE_FAULTS:
            occurs = self.occurs()
            worker.cut_off_from_stripe = occurs and self._kind is FaultKind.CHARGE_UNANSWERED
            return _STRIPE_FAULTS[self._kind] if occurs else None
        if "drop before" in possible and worker.cut_off_from_stripe:
            # Stripe has this key already, so it does not matter whether the retry arrives.
            return "drop before"
        return None
