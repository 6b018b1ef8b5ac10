"""Many schedules: every one that there is of a small scenario, or many random ones of larger scenarios."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from lab.simulation.choices import GivenChoices, ScriptedChoices, SeededChoices, shortened
from lab.simulation.scenarios import RANDOM_SCENARIOS, SCENARIOS
from lab.simulation.world import Scenario, Schedule, Violation, World, violation_of

Mutate = Callable[[World], None]


def no_mutation(world: World) -> None:
    """The protocol as it is."""


@dataclass
class Findings:
    """What a number of schedules came to."""

    schedules: int = 0
    steps: int = 0
    seconds: float = 0.0
    violations: list[tuple[str, Violation]] = field(default_factory=list)
    coverage: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, world: Schedule) -> None:
        self.schedules += 1
        violation = violation_of(world)
        if violation is not None:
            self.violations.append((name, violation))
        self.steps += world.steps
        self.coverage += world.coverage

    def __iadd__(self, more: "Findings") -> "Findings":
        self.schedules += more.schedules
        self.steps += more.steps
        self.seconds += more.seconds
        self.violations += more.violations
        self.coverage += more.coverage
        return self

    def as_json(self) -> dict[str, object]:
        """What `make simulate` prints."""
        return {
            "schedules": self.schedules,
            "steps": self.steps,
            "violations": len(self.violations),
            "schedules_per_second": round(self.schedules / self.seconds),
            "coverage": dict(sorted(self.coverage.items())),
        }


def explored(numbers: Iterable[int], make: Callable[[int], Schedule], *, seed: int = 0) -> Findings:
    """The schedules of these numbers, each with choices of its own: the seed repeats all, `seed:number` one."""
    findings, started = Findings(), time.perf_counter()
    for number in numbers:
        findings.add(f"{seed}:{number}", make(number))
    findings.seconds = time.perf_counter() - started
    return findings


def caught(schedules: int, seed: int, mutate: Mutate) -> Findings:
    """Schedules of a broken protocol up to the first that shows it, so many at the most."""
    findings = Findings()
    for number in range(schedules):
        findings.add(f"{seed}:{number}", random_world(seed, number, mutate))
        if findings.violations:
            break
    return findings


def random_world(seed: int, number: int, mutate: Mutate = no_mutation, *, of: Scenario | None = None) -> World:
    """The schedule of that name, to the byte."""
    scenarios = RANDOM_SCENARIOS if mutate is no_mutation else (*SCENARIOS.values(),)
    return World(of or scenarios[number % len(scenarios)], SeededChoices(seed * 1_000_003 + number), mutate)


def minimal(name: str, mutate: Mutate = no_mutation) -> Violation:
    """The shortest schedule found that breaks the same invariant as the one of that name, `seed:number`."""
    seed, number = map(int, name.split(":"))
    world = random_world(seed, number, mutate)
    whole = violation_of(world)
    assert whole is not None, f"{name} breaks nothing"

    def shorter(script: Sequence[int]) -> Violation | None:
        violation = violation_of(World(world.scenario, GivenChoices(script), mutate))
        return violation if violation and violation.what == whole.what else None

    assert isinstance(world.choices, SeededChoices)
    script = shortened(world.choices.taken, lambda script: shorter(script) is not None)
    return shorter(script) or whole


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
    findings, started = Findings(), time.perf_counter()
    scenario = Scenario(copies=2, crash_probability=1.0)

    def explore(choices: ScriptedChoices) -> None:
        findings.add(",".join(map(str, choices.script)), World(scenario, choices))

    for _ in every_script(explore, first=first):
        pass
    findings.seconds = time.perf_counter() - started
    return findings
