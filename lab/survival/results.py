"""Run all schedules of all cells, on several processes, and count the failures."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, astuple, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from lab.processes import pool as pool_of
from lab.simulation.choices import SeededChoices
from lab.survival.aws import VirtualClock, virtual_clock
from lab.survival.designs import DESIGNS
from lab.survival.faults import FAULTS
from lab.survival.trial import PAID_AGAIN, RELEASED, SurvivalWorld
from tests.shop.builders import T0

RESULTS = Path(__file__).with_name("results.json")
_CHUNK = 250


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
    """The whole table, by fault, then by design."""

    seed: int
    schedules: int
    versions: Mapping[str, str]
    cells: Mapping[str, Mapping[str, Cell]]

    def to_json(self) -> str:
        """One line for each fault, so that a diff compares two runs."""
        fields = asdict(self)
        rows = [f"  {json.dumps(fault)}: {json.dumps(row)}" for fault, row in fields.pop("cells").items()]
        lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in fields.items()]
        return "\n".join(["{", *lines, ' "cells": {', ",\n".join(rows), " }", "}", ""])

    @classmethod
    def of_json(cls, text: str) -> "Results":
        fields = json.loads(text)
        cells = {fault: {name: Cell(**each) for name, each in row.items()} for fault, row in fields["cells"].items()}
        return cls(**{**fields, "cells": cells})


class FaultNeverOccurred(AssertionError):
    """A fault occurred in no schedule of a design, so a zero there would mean nothing."""


@cache
def _opportunities(fault: str, design: str) -> int:
    """The number of opportunities for the fault, counted in a schedule in which it does not occur."""
    world = SurvivalWorld(DESIGNS[design], FAULTS[fault], SeededChoices(0), at=None)
    world.run()
    return world.opportunities


def schedule(fault: str, design: str, seed: int, number: int, clock: VirtualClock) -> SurvivalWorld:
    """The schedule with this number, ready to run. The same seed and number give the same schedule."""
    choices = SeededChoices(seed * 1_000_003 + number)
    clock.now = lambda: T0
    at = choices.pick(_opportunities(fault, design)) if FAULTS[fault].kind else None
    world = SurvivalWorld(DESIGNS[design], FAULTS[fault], choices, at=at)
    clock.now = world.now
    return world


Task = tuple[str, str, int, range]
"""Fault, design, seed, the numbers of schedules."""


def run_chunk(task: Task) -> tuple[str, str, Cell]:
    """Some of the schedules of a cell."""
    fault, design, seed, numbers = task
    cell = Cell()
    with virtual_clock() as clock:
        for number in numbers:
            world = schedule(fault, design, seed, number, clock)
            charges, acts = world.run(), world.acts
            cell += Cell(1, charges > 1, charges == 0, world.fault_occurred, RELEASED in acts, PAID_AGAIN in acts)
    return fault, design, cell


def run_all(schedules: int, seed: int, *, processes: int = 1) -> Results:
    """Run so many schedules of every cell: the same figures on any number of processes. Raises FaultNeverOccurred."""
    cells = {(fault, design): Cell() for fault in FAULTS for design in DESIGNS}
    chunks = [range(first, min(first + _CHUNK, schedules)) for first in range(0, schedules, _CHUNK)]
    tasks = [(fault, design, seed, chunk) for fault, design in cells for chunk in chunks]
    with pool_of(processes) if processes > 1 else nullcontext() as pool:
        for fault, design, cell in pool.imap_unordered(run_chunk, tasks) if pool else map(run_chunk, tasks):
            cells[fault, design] += cell
    for (fault, design), cell in cells.items():
        if not cell.occurred and DESIGNS[design].keys:  # Without a table nothing is written.
            raise FaultNeverOccurred(f"{fault!r} never occurred for {design}")
    versions = {name: version(name) for name in ("aws-lambda-powertools", "boto3", "stripe")}
    table = {fault: {design: cells[fault, design] for design in DESIGNS} for fault in FAULTS}
    return Results(seed, schedules, versions, table)


def trace(fault: str, design: str, seed: int, schedules: int) -> tuple[int, list[str]]:
    """One schedule, by its number and line by line: the first that fails or in which people act, or else the first."""
    first = None
    with virtual_clock() as clock:
        for number in range(schedules):
            world = schedule(fault, design, seed, number, clock)
            fails = world.run() != 1
            lines = [f"{seconds:>9,} s  {text}" for seconds, text in world.timeline]
            if fails or world.acts:
                return number, lines
            first = first or (number, lines)
    assert first
    return first
