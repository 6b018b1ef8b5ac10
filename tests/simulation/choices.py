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

    First by cutting off its end and taking out ever smaller pieces, then choice by choice.
    """
    best = list(script)
    piece = len(best) // 2
    while piece:
        place = 0
        while place < len(best):
            for shorter in (best[:place] + best[place + piece :], best[:place] + [0] * piece + best[place + piece :]):
                if shorter != best and still_breaks(shorter):
                    best = shorter
                    break
            else:
                place += piece
                continue
            if len(best) <= place or not any(best[place:]):
                break
        piece //= 2
    while best and best[-1] == 0:
        best.pop()
    return best
