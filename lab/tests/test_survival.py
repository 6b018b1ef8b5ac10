"""Which designs survive which faults: the table's claims, with fewer schedules than `make survival` runs."""

import re
from dataclasses import replace

import pytest

from lab.survival.aws import virtual_clock
from lab.survival.designs import DESIGNS, OURS
from lab.survival.faults import FAULTS
from lab.survival.report import PAGE, PICTURE, page, svg
from lab.survival.results import RESULTS, Cell, Results, run_chunk, schedule
from tests.shop.builders import T0

FAILS = {
    "message-id": ("crash", "lost"),
    "get-put": ("delivered-twice-at-once", "double"),
    "claim-first": ("stripe-down", "lost"),
    "stripe-key": ("crash-then-deploy", "double"),
    "powertools": ("crash", "double"),
    "powertools-key": ("500-charged", "double"),
    "durable-function": ("delivered-again", "double"),
}
"""For each design a fault that it is known to fail under, and how."""


def cell_of(fault: str, design: str, *, schedules: int = 15, seed: int = 1) -> Cell:
    return run_chunk((fault, design, seed, range(schedules)))[2]


@pytest.mark.parametrize("fault", FAULTS)
def test_ours_survives(fault: str) -> None:
    """No order is charged twice, none is lost, and the fault occurred in each schedule.

    People act only where it is known: an operator if the order is older than Stripe's keys, the customer after a 500
    that has not charged.
    """
    cell = cell_of(fault, OURS)
    assert replace(cell, released=0, paid_again=0) == Cell(schedules=15, double=0, lost=0, occurred=15)
    assert bool(cell.released) == (fault in ("crash-day-13", "restored"))
    assert bool(cell.paid_again) == (fault == "500-not-charged")


@pytest.mark.parametrize("design", FAILS)
def test_the_others_fail_where_it_is_known(design: str) -> None:
    """A benchmark that they all pass would show nothing; but each works when nothing goes wrong."""
    fault, how = FAILS[design]
    assert getattr(cell_of(fault, design), how) > 0
    assert cell_of("nothing", design, schedules=1) == Cell(1, occurred=1)


def test_figures_repeat_for_a_seed() -> None:
    """Another seed makes others."""
    once = cell_of("zombie", "powertools")
    assert cell_of("zombie", "powertools") == once
    assert cell_of("zombie", "powertools", seed=2) != once


def test_powertools_lives_by_the_virtual_clock() -> None:
    """Its record expires an hour after the virtual now, and not after ours."""
    with virtual_clock() as clock:
        world = schedule("nothing", "powertools", 1, 0, clock)
        world.run()
    [record] = world.dynamodb.tables["IdempotencyTable"].values()
    assert record["expiration"] == {"N": str(T0 + 3600)}


def test_what_is_published_is_what_was_measured() -> None:
    """results.json and docs/survival.svg say the same, cover every fault and design, and ours is green throughout."""
    results = Results.of_json(RESULTS.read_text())
    assert list(results.cells) == list(FAULTS)
    assert svg(results) == PICTURE.read_text()
    for row in results.cells.values():
        assert list(row) == list(DESIGNS)
        assert (row[OURS].double, row[OURS].lost) == (0, 0)


@pytest.mark.nightly
def test_the_page_is_the_one_that_the_results_give() -> None:
    """Its schedules, and the code of the designs and of `charge`: after a change, `--publish` writes it again.

    Each link leads to a part of the page.
    """
    written = PAGE.read_text()
    assert written == page(Results.of_json(RESULTS.read_text()))
    assert set(re.findall(r'href="#([^"]+)"', written)) <= set(re.findall(r'id="([^"]+)"', written))
