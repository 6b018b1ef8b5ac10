"""Whether a change costs more than the release before it: exact counts, and CPU with its uncertainty. Pure."""

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.speed.measure import Requests

CPU_MAX = 1.05
"""A change may take so much of the former CPU."""
_RESAMPLES = 2_000
_SURE = 0.99
"""How sure it has to be that CPU_MAX is exceeded. What is not sure passes: noise fails nobody's change."""


@dataclass(frozen=True)
class Interval:
    """The median of ratios, and between which bounds it lies with the probability 2 x _SURE - 1."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> "Interval":
        """By bootstrap: the medians of samples that are drawn from the ratios, with replacement (Efron 1979).

        Args:
            ratios: one for each pair of processes. Rounds within a pair are no independent samples: where a process
                happens to have its memory makes all its rounds a bit faster or slower.
        """
        chance = random.Random(1)
        medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES))
        return cls(
            statistics.median(ratios), medians[int(_RESAMPLES * (1 - _SURE))], medians[int(_RESAMPLES * _SURE) - 1]
        )

    @property
    def is_slower(self) -> bool:
        """Whether it surely takes more than CPU_MAX."""
        return self.low > CPU_MAX


@dataclass(frozen=True)
class Costs:
    """What one release asks for, for a batch of ten orders."""

    fresh: Requests
    duplicate: Requests


def findings(former: Costs, present: Costs, cpu: Mapping[str, Interval]) -> Iterator[str]:
    """What the change costs that it must not; nothing if it is all right."""
    for kind in ("fresh", "duplicate"):
        before: Requests = getattr(former, kind)
        after: Requests = getattr(present, kind)
        for service, was, now in (
            ("Stripe", before.stripe, after.stripe),
            ("DynamoDB", before.dynamodb, after.dynamodb),
        ):
            if now > was:
                yield f"10 {kind} orders: {now} requests to {service}, {was} before"
    for name, interval in cpu.items():
        if interval.is_slower:
            yield (
                f"{name}: {interval.median:.3f} of the CPU before (at least {interval.low:.3f}); "
                f"at most {CPU_MAX} is allowed"
            )
