"""Run all schedules of all cells, on several processes, and count the failures."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lab.processes import pool as pool_of
from lab.publish import as_lines
from lab.simulation.choices import SeededChoices
from lab.survival.design import Design
from lab.survival.designs import DESIGNS
from lab.survival.faults import FAULTS, Fault
from lab.survival.libraries import VirtualClock, virtual_clock
from lab.survival.trial import PAID_AGAIN, RELEASED, SurvivalWorld
from tests.shop.builders import T0

RESULTS = Path(__file__).with_name("results.json")
_CHUNK = 500
_VERSIONS = ("aws-lambda-powertools", "boto3", "stripe")


@dataclass(frozen=True)
class Cell:
    """The counts of one design under one fault."""

    schedules: int = 0
    double: int = 0
    """Orders that were charged more than once."""
    lost: int = 0
    """Orders that were never charged."""
    occurred: int = 0
    """Schedules in which the fault occurred."""
    released: int = 0
    """Schedules in which an operator had to release the order."""
    paid_again: int = 0
    """Schedules in which the customer was told that the payment failed, and paid again."""

    def __add__(self, other: "Cell") -> "Cell":
        return Cell(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Results:
    """The whole table, by fault, then by design; without the cells whose fault the design excludes."""

    seed: int
    schedules: int
    versions: Mapping[str, str]
    cells: Mapping[str, Mapping[str, Cell]]

    def to_json(self) -> str:
        """One line for each fault, so that a diff compares two runs."""
        return as_lines(asdict(self)) + "\n"

    @classmethod
    def of_json(cls, text: str) -> "Results":
        fields: dict[str, Any] = json.loads(text)
        fields["cells"] = {
            fault: {design: Cell(**cell) for design, cell in row.items()} for fault, row in fields["cells"].items()
        }
        return cls(**fields)


class FaultNeverOccurred(AssertionError):
    """A fault occurred in no schedule of a design, so a zero there would mean nothing."""


@cache
def opportunities(design: Design, fault: Fault) -> int:
    """The number of opportunities for the fault, counted in a schedule in which it does not occur."""
    world = SurvivalWorld(design, fault, SeededChoices(0), at=None, tracing=False)
    world.run()
    return world.injector.opportunities


def schedule(
    design: Design, fault: Fault, seed: int, number: int, clock: VirtualClock, *, tracing: bool = False
) -> SurvivalWorld:
    """The schedule with this number, ready to run. The same seed and number give the same schedule."""
    choices = SeededChoices(seed * 1_000_003 + number)
    clock.now = lambda: T0
    at = choices.pick(opportunities(design, fault)) if fault.kind else None
    world = SurvivalWorld(design, fault, choices, at=at, tracing=tracing)
    clock.now = world.now
    return world


Task = tuple[str, str, int, int, int]
"""Fault, design, seed, first schedule, number of schedules."""


def run_chunk(task: Task) -> tuple[str, str, Cell]:
    """Some of the schedules of a cell."""
    fault, design, seed, first, count = task
    cell = Cell()
    with virtual_clock() as clock:
        for number in range(first, first + count):
            outcome = schedule(DESIGNS[design], FAULTS[fault], seed, number, clock).run()
            lost, double = outcome.charges == 0, outcome.charges > 1
            cell += Cell(1, double, lost, outcome.fault_occurred, RELEASED in outcome.acts, PAID_AGAIN in outcome.acts)
    return fault, design, cell


def run_all(
    schedules: int,
    seed: int,
    *,
    processes: int = 1,
    faults: Mapping[str, Any] = FAULTS,
    designs: Mapping[str, Any] = DESIGNS,
    progress: Callable[[int], None] = lambda done: None,
) -> Results:
    """Run every cell. The same seed gives the same figures, on any number of processes.

    Args:
        schedules: how many for each cell.
        progress: called with a number of schedules when they are done.

    Raises:
        FaultNeverOccurred: a fault that a design does not exclude occurred in none of its schedules.
    """
    pairs = [(fault, design) for fault in faults for design in designs if fault not in DESIGNS[design].excluded_faults]
    tasks: list[Task] = [
        (fault, design, seed, first, min(_CHUNK, schedules - first))
        for fault, design in pairs
        for first in range(0, schedules, _CHUNK)
    ]
    cells = dict.fromkeys(pairs, Cell())
    for fault, design, cell in _in_processes(processes, tasks):
        cells[fault, design] += cell
        progress(cell.schedules)
    for (fault, design), cell in cells.items():
        if not cell.occurred:
            raise FaultNeverOccurred(f"{fault!r} never occurred for {design}")
    return Results(
        seed,
        schedules,
        {name: version(name) for name in _VERSIONS},
        {fault: {design: cells[fault, design] for design in designs if (fault, design) in cells} for fault in faults},
    )


def _in_processes(processes: int, tasks: Sequence[Task]) -> Iterator[tuple[str, str, Cell]]:
    if processes == 1:
        yield from map(run_chunk, tasks)
        return
    with pool_of(processes) as pool:
        yield from pool.imap_unordered(run_chunk, tasks)
