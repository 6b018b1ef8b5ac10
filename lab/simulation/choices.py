"""Where a schedule's choices come from: a seed, a script, or a schedule that went before, made shorter."""

import random
from collections.abc import Callable, Sequence
from typing import Protocol


class Choices(Protocol):
    """All that differs between two schedules of one scenario."""

    def pick(self, options: int) -> int:
        """One of so many options, from 0."""

    def happens(self, probability: float) -> bool:
        """Whether something rare happens here."""


class SeededChoices:
    """At random, the same for the same seed; remembers what it chose."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.taken: list[int] = []

    def pick(self, options: int) -> int:
        choice = int(self._random.random() * options)
        self.taken.append(choice)
        return choice

    def happens(self, probability: float) -> bool:
        choice = probability > 0 and self._random.random() < probability
        self.taken.append(choice)
        return choice


class GivenChoices:
    """Those of a script; beyond its end, and where it does not fit, the first option, and nothing happens."""

    def __init__(self, script: Sequence[int]) -> None:
        self._script = script
        self._place = 0

    def _next(self) -> int:
        self._place += 1
        return self._script[self._place - 1] if self._place <= len(self._script) else 0

    def pick(self, options: int) -> int:
        choice = self._next()
        return choice if choice < options else 0

    def happens(self, probability: float) -> bool:
        return self._next() == 1 and probability > 0


class ScriptedChoices:
    """Follows a script of choices, then always the first one; remembers how many options there were at each.

    One crash at the most: once it has happened, it is no choice any more.
    """

    def __init__(self, script: list[int]) -> None:
        self.script = script
        self.options: list[int] = []
        self.taken: list[int] = []
        self.crashed = False

    def pick(self, options: int) -> int:
        place = len(self.options)
        choice = self.script[place] if place < len(self.script) else 0
        self.options.append(options)
        self.taken.append(choice)
        return choice

    def happens(self, probability: float) -> bool:
        if probability == 0 or self.crashed:
            return False
        self.crashed = self.pick(2) == 1
        return self.crashed


def shortened(script: Sequence[int], still_breaks: Callable[[Sequence[int]], bool]) -> list[int]:
    """The script with as many choices as possible left out or made dull, so that it still breaks the same invariant.

    Pieces of every size are tried, the largest first, until none can be spared any more.
    """
    best, before = list(script), None
    while best != before:
        before = best
        sizes = [len(best) >> shift for shift in range(1, len(best).bit_length()) if len(best) >> shift > _SMALL]
        for size in [*sizes, *range(_SMALL, 0, -1)]:
            best = _without_pieces(best, size, still_breaks)
    while best and best[-1] == 0:
        best.pop()
    return best


_SMALL = 16


def _without_pieces(script: list[int], size: int, still_breaks: Callable[[Sequence[int]], bool]) -> list[int]:
    place = 0
    while any(script[place:]):
        before, after = script[:place], script[place + size :]
        candidates = [before + after, [*before, *[0] * len(script[place : place + size]), *after]]
        simpler = [each for each in candidates if (len(each), sum(each)) < (len(script), sum(script))]
        shorter = next((each for each in simpler if still_breaks(each)), None)
        if shorter is None:
            place += 1 if size <= _SMALL else size
        else:
            script = shorter
    return script
