"""Who survives what: the table's claims, with fewer schedules than `make survival` runs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lab.survival.designs import DESIGNS
from lab.survival.faults import FAULTS
from lab.survival.libraries import virtual_clock
from lab.survival.page import PAGE, data_of
from lab.survival.recording import OURS, PROJECT, record
from lab.survival.report import PICTURE, README, in_markdown, svg
from lab.survival.results import RESULTS, Cell, Results, run_all, run_chunk, schedule
from lab.survival.trial import AMOUNT_MINOR
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
    """No order charged twice, none lost, and the fault occurred in each of 50 schedules.

    People act only where it is known: an operator if the order is older than Stripe's keys, the customer after a 500
    that has not charged yet.
    """
    _, _, cell = run_chunk((fault, "onecharge", 1, 0, 50))
    assert replace(cell, released=0, paid_again=0) == Cell(schedules=50, double=0, lost=0, occurred=50)
    assert bool(cell.released) == (fault in ("crash-day-13", "restored"))
    assert bool(cell.paid_again) == (fault in ("500-not-charged", "500-charges-later"))


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


def paid_at_the_end(recording: Mapping[str, Any]) -> int:
    """The last figure of the meter, in minor units."""
    paid_minor: int = recording["steps"][-1][3]
    return paid_minor


def test_the_page_shows_what_was_measured() -> None:
    """Each cell has the figures of results.json, and a schedule whose ledger says the same; ours charges once."""
    results, data = Results.of_json(RESULTS.read_text()), data_of(PAGE.read_text())
    assert data["versions"] == results.versions
    assert data["cells"].keys() == results.cells.keys()
    for fault, row in results.cells.items():
        assert data["cells"][fault].keys() == row.keys()
        for design, cell in row.items():
            shown = data["cells"][fault][design]
            assert (shown["double"], shown["lost"]) == (cell.double, cell.lost)
            assert paid_at_the_end(shown) == shown["charges"] * AMOUNT_MINOR
            fails_as = "double" if shown["charges"] > 1 else "lost" if shown["charges"] == 0 else ""
            assert bool(fails_as) == bool(cell.double or cell.lost)
            assert not fails_as or getattr(cell, fails_as) > 0
            if design != OURS:
                beside = data["beside"][fault][shown["beside"]]
                assert (beside["charges"], paid_at_the_end(beside)) == (1, AMOUNT_MINOR)


def test_the_page_shows_the_code_as_it_is() -> None:
    """After a change of a design, or of the charge, `--publish` writes the page again."""
    for design in data_of(PAGE.read_text())["designs"]:
        assert design["source"]
        for file, _, text in design["source"]:
            assert text in (PROJECT / file).read_text(), (design["name"], file)


@pytest.mark.parametrize(("fault", "design"), [("crash", "powertools"), ("stripe-down", "fifo"), ("crash", OURS)])
def test_a_recorded_schedule_is_recorded_again(fault: str, design: str) -> None:
    """The page is not edited by hand: the same seed gives the same steps."""
    results, data = Results.of_json(RESULTS.read_text()), data_of(PAGE.read_text())
    shown = data["cells"][fault][design]
    again = record(fault, design, results.seed, results.cells[fault][design])
    assert (again.number, again.charges, again.fault_at) == (shown["number"], shown["charges"], shown["fault_at"])
    steps = [[seconds, worker, data["texts"][text], paid] for seconds, worker, text, paid, _ in shown["steps"]]
    assert [[each.seconds, each.worker, each.text, each.paid_minor] for each in again.steps] == steps
