"""Who survives what: the table's claims, with fewer schedules than `make survival` runs."""

from collections.abc import Mapping

import pytest

from lab.survival.designs import DESIGNS
from lab.survival.faults import FAULTS
from lab.survival.libraries import virtual_clock
from lab.survival.report import PICTURE, README, in_markdown, svg
from lab.survival.results import RESULTS, Cell, Results, run_all, run_chunk, schedule
from tests.shop.builders import T0

WELL_KNOWN: Mapping[str, tuple[str, str]] = {
    "message-id": ("crash", "lost"),
    "get-put": ("delivered-twice-at-once", "double"),
    "lock-5s": ("delivered-again-while-slow", "double"),
    "claim-first": ("crash", "lost"),
    "fifo": ("stripe-down", "lost"),
    "outbox": ("charge-unanswered", "double"),
    "powertools": ("crash", "double"),
    "powertools-key": ("500-charged", "double"),
    "durable-function": ("delivered-again", "double"),
    "durable-engine": ("500-charged", "double"),
}
"""For each design a fault that it is known to fail under, and how."""


@pytest.mark.parametrize("fault", FAULTS)
def test_ours_survives(fault: str) -> None:
    """No order charged twice, none lost, and the fault occurred in each of 50 schedules."""
    _, _, cell = run_chunk((fault, "onecharge", 1, 0, 50))
    assert cell == Cell(schedules=50, double=0, lost=0, occurred=50)


@pytest.mark.parametrize("design", WELL_KNOWN)
def test_the_others_fail_where_it_is_known(design: str) -> None:
    """A benchmark that they all pass would show nothing."""
    fault, how = WELL_KNOWN[design]
    _, _, cell = run_chunk((fault, design, 1, 0, 50))
    assert getattr(cell, how) > 0


@pytest.mark.parametrize("fault", ["crash", "time-out", "charge-unanswered", "500-not-charged", "write-unanswered"])
@pytest.mark.parametrize("design", ["durable-function", "durable-engine"])
def test_durable_executions_survive_what_they_are_made_for(fault: str, design: str) -> None:
    """An interrupted execution continues from its checkpoints, with the same idempotency key."""
    _, _, cell = run_chunk((fault, design, 1, 0, 50))
    assert cell == Cell(schedules=50, double=0, lost=0, occurred=50)


@pytest.mark.parametrize("design", DESIGNS)
def test_every_design_works_when_nothing_goes_wrong(design: str) -> None:
    """It is written down as it is meant: one order, one charge."""
    _, _, cell = run_chunk(("nothing", design, 1, 0, 20))
    assert (cell.double, cell.lost) == (0, 0)


def test_figures_repeat_for_a_seed() -> None:
    """The same table, on one process as on two; another seed makes another one."""
    faults = {name: FAULTS[name] for name in ("crash", "zombie")}
    designs = {name: DESIGNS[name] for name in ("powertools", "outbox", "onecharge")}
    once = run_all(20, 1, faults=faults, designs=designs)
    assert run_all(20, 1, faults=faults, designs=designs, processes=2) == once
    assert run_all(20, 2, faults=faults, designs=designs) != once


def test_powertools_lives_by_the_virtual_clock() -> None:
    """Its record expires an hour after the virtual now, and not after ours."""
    with virtual_clock() as clock:
        world = schedule(DESIGNS["powertools"], FAULTS["nothing"], 1, 0, clock)
        world.run()
    [record] = world.dynamodb.tables["IdempotencyTable"].values()
    assert record["expiration"] == {"N": str(T0 + 3600)}


def test_what_is_published_is_what_was_measured() -> None:
    """results.json, the README's table and docs/survival.svg say the same, and cover every fault and design."""
    results = Results.of_json(RESULTS.read_text())
    assert list(results.cells) == list(FAULTS)
    assert in_markdown(results) in README.read_text()
    assert svg(results) == PICTURE.read_text()
    for fault, row in results.cells.items():
        assert row.keys() == {design for design in DESIGNS if fault not in DESIGNS[design].excluded_faults}
        assert all(cell.occurred == cell.schedules for cell in row.values())
        assert (row["onecharge"].double, row["onecharge"].lost) == (0, 0)
