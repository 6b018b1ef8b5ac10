"""Whether a change costs more than the release before it: exact counts; CPU and memory with their uncertainty. Pure."""

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.speed.measure import Requests

RATIO_MAX = 1.05
"""A change may take so much of the former CPU, and of the former memory."""
_RESAMPLES = 2_000
_SURE = 0.99
"""How sure it has to be that RATIO_MAX is exceeded. What is not sure passes: noise fails nobody's change."""


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
    def is_more(self) -> bool:
        """Whether it surely is more than RATIO_MAX."""
        return self.low > RATIO_MAX


@dataclass(frozen=True)
class Costs:
    """What one release asks for, for a batch of ten orders."""

    fresh: Requests
    duplicate: Requests


def findings(former: Costs, present: Costs, ratios: Mapping[str, Interval]) -> Iterator[str]:
    """What the change costs that it must not; nothing if it is all right.

    Args:
        ratios: by what is measured, how much of the former CPU or memory it takes.
    """
    for kind in ("fresh", "duplicate"):
        before: Requests = getattr(former, kind)
        after: Requests = getattr(present, kind)
        for service, was, now in (
            ("Stripe", before.stripe, after.stripe),
            ("DynamoDB", before.dynamodb, after.dynamodb),
        ):
            if now > was:
                yield f"10 {kind} orders: {now} requests to {service}, {was} before"
    for name, interval in ratios.items():
        if interval.is_more:
            yield (
                f"{name}: {interval.median:.3f} of before (at least {interval.low:.3f}); at most {RATIO_MAX} is allowed"
            )
