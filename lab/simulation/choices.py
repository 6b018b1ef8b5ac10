"""Where a schedule's choices come from: a seed, or a script."""

import random


class SeededChoices:
    """At random, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def pick(self, options: int) -> int:
        """One of so many options, from 0."""
        return int(self._random() * options)

    def happens(self, probability: float) -> bool:
        """Whether something rare happens here."""
        return probability > 0 and self._random() < probability


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


Choices = SeededChoices | ScriptedChoices
"""All that differs between two schedules of one scenario."""
