"""The ten experiments of the console, on a stack of their own: one charge is onecharge's, whatever is pressed."""

from pathlib import Path

import pytest

from console.breaks import BREAKS
from lab.experiments import EXPERIMENTS, OURS, run
from tests.support.harness import PROJECT


def test_each_button_that_breaks_something_is_pressed() -> None:
    """Except "surprise", which presses others at random."""
    assert {name for buttons in EXPERIMENTS.values() for name in buttons} == {each.name for each in BREAKS} - {
        "surprise"
    }


def test_readme_has_each_experiment_and_one_charge_of_ours() -> None:
    """The table that `make experiments WRITE=1` writes: another title, or another count of ours, is noticed."""
    lines = (PROJECT / "README.md").read_text().splitlines()
    rows = {title: line for title in EXPERIMENTS for line in lines if line.startswith(f"| {title} |")}
    assert rows.keys() == EXPERIMENTS.keys()
    assert all(row.endswith("| 1 |") for row in rows.values())


@pytest.mark.nightly
def test_onecharge_charges_each_order_once(tmp_path: Path) -> None:
    """Beside it the usual workers charge every order at least once, and that of the killed worker twice."""
    outcomes = {each.title: each.charges for each in run(tmp_path)}
    assert {title: charges[OURS] for title, charges in outcomes.items()} == dict.fromkeys(EXPERIMENTS, 1)
    assert all(min(charges.values()) >= 1 for charges in outcomes.values())
    assert outcomes["A worker is killed"] == {"acct_naive": 2, "acct_powertools": 2, OURS: 1}
