"""The figures of a run: rates, errors by kind, percentiles, and one charge for each order."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.load.open_loop import Sent


def percentile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed (nearest rank); None without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


@dataclass(frozen=True)
class Latencies:
    """In seconds, from when the request was due."""

    p50: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Latencies":
        return cls(percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1))


@dataclass(frozen=True)
class Figures:
    """What .local/load.json holds."""

    offered_rate: float
    seconds: int
    sent: int
    accepted: int
    accepted_rate: float
    """Orders that were answered with 202, a second, until the last answer."""
    paid: int
    paid_rate: float
    """Orders that became PAID, a second, until the last one did."""
    errors: Mapping[str, int]
    to_answer: Latencies
    to_paid: Latencies
    charged_once: int
    charged_more_than_once: int
    not_charged: int
    charges_of_nobody: int

    @property
    def is_kept(self) -> bool:
        """The promise: each accepted order has one charge, and is PAID."""
        return self.charged_once == self.accepted == self.paid and not self.charges_of_nobody

    def as_json(self) -> str:
        return json.dumps({**asdict(self), "is_kept": self.is_kept}, indent=2) + "\n"


def figures_of(requests: Sequence[Sent], *, rate: int, seconds: int, charges: Mapping[str, int]) -> Figures:
    """The figures of all requests of a run; `charges` counts the ledger's charges by order."""
    accepted = [each for each in requests if each.order_id]
    answers = [each.answered - each.due for each in accepted if each.answered]
    payments = [each.paid - each.due for each in accepted if each.paid]
    counts = [charges.get(each.order_id or "", 0) for each in accepted]
    return Figures(
        offered_rate=rate,
        seconds=seconds,
        sent=len(requests),
        accepted=len(accepted),
        accepted_rate=_rate(requests, [each.answered for each in accepted]),
        paid=len(payments),
        paid_rate=_rate(requests, [each.paid for each in accepted]),
        errors=dict(Counter(each.error for each in requests if each.error)),
        to_answer=Latencies.of(answers),
        to_paid=Latencies.of(payments),
        charged_once=counts.count(1),
        charged_more_than_once=sum(count > 1 for count in counts),
        not_charged=counts.count(0),
        charges_of_nobody=sum(charges.values()) - sum(counts),
    )


def _rate(requests: Sequence[Sent], times: Sequence[float | None]) -> float:
    """Events a second, from when the first request was due until the last event."""
    known = [at for at in times if at]
    return round(len(known) / (max(known) - requests[0].due), 2) if known else 0
