"""Many schedules: every one that there is of a small scenario, or many random ones of larger scenarios."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lab.simulation import refunding, scenarios, seams
from lab.simulation.choices import ScriptedChoices, SeededChoices
from lab.simulation.world import Mutate, Scenario, Violation, World, violation_of


class Kind(NamedTuple):
    """Worlds of one kind, and their scenarios by name."""

    world: type[World]
    scenarios: Mapping[str, Scenario]
    in_turn: Sequence[str]
    """The scenarios of schedules 0, 1, 2, …, again and again."""


KINDS: Mapping[str, Kind] = {
    "charges": Kind(World, scenarios.SCENARIOS, scenarios.IN_TURN),
    "refunds": Kind(refunding.RefundWorld, refunding.SCENARIOS, list(refunding.SCENARIOS)),
    "seams": Kind(seams.SeamWorld, seams.SCENARIOS, list(seams.SCENARIOS)),
}


def world_of(kind: str, seed: int, number: int, mutate: Mutate | None = None, *, of: str | None = None) -> Any:
    """The schedule of that name, to the byte: of one scenario, or of all in turn."""
    world, by_name, in_turn = KINDS[kind]
    return world(by_name[of or in_turn[number % len(in_turn)]], SeededChoices(seed * 1_000_003 + number), mutate)


@dataclass
class Findings:
    """What a number of schedules came to."""

    schedules: int = 0
    violations: list[tuple[str, Violation]] = field(default_factory=list)
    coverage: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, world: World) -> None:
        self.schedules += 1
        violation = violation_of(world)
        if violation is not None:
            self.violations.append((name, violation))
        self.coverage += world.coverage

    def __iadd__(self, more: "Findings") -> "Findings":
        self.schedules += more.schedules
        self.violations += more.violations
        self.coverage += more.coverage
        return self

    def as_json(self) -> dict[str, object]:
        """What `make simulate` prints."""
        found = {"schedules": self.schedules, "violations": len(self.violations)}
        return {**found, "coverage": dict(sorted(self.coverage.items()))}


def explored(numbers: Iterable[int], kind: str, seed: int, *, of: str | None = None) -> Findings:
    """The schedules of these numbers, each with choices of its own: the seed repeats all, `seed:number` one."""
    findings = Findings()
    for number in numbers:
        findings.add(f"{seed}:{number}", world_of(kind, seed, number, of=of))
    return findings


def every_script(explore: Callable[[ScriptedChoices], None], *, first: Sequence[int] = ()) -> Iterator[ScriptedChoices]:
    """Depth first through the whole tree of choices, or through the part of it that begins with these."""
    script = list(first)
    while True:
        choices = ScriptedChoices(script)
        explore(choices)
        yield choices
        taken = choices.taken
        while len(taken) > len(first) and taken[-1] + 1 >= choices.options[len(taken) - 1]:
            taken.pop()
        if len(taken) == len(first):
            return
        script = [*taken[:-1], taken[-1] + 1]


def exhaustive_schedules(*, first: Sequence[int] = ()) -> Findings:
    """Two deliveries of one order: every interleaving at every boundary, with every single crash point, and none.

    Only those that begin with these choices, if there are any.
    """
    findings = Findings()
    scenario = Scenario(copies=2, crash_probability=1.0)
    for _ in every_script(lambda each: findings.add(str(each.script), World(scenario, each)), first=first):
        pass
    return findings
