"""`make bench`: what its table says, and that a function which fails has no figures."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import botocore
import pytest

from lab.speed.functions import Function, WorkFailed, compile_all
from lab.speed.report import PICTURE, README, in_markdown, rows_of, svg
from lab.speed.results import DESIGNS, OURS, POWERTOOLS, RESULTS, Run
from lab.speed.worker import consumed

_FUNCTION = """
import boto3

def handler(event, context):
    print("x" * 9)
    if event["secret"]:
        boto3.client("secretsmanager").get_secret_value(SecretId="stripe")
    return {"batchItemFailures": event["failures"]}
"""


@pytest.fixture
def run() -> Run:
    return Run.of_json(RESULTS.read_text())


@pytest.fixture
def function(tmp_path: Path) -> Iterator[Function]:
    (tmp_path / "app.py").write_text(_FUNCTION)
    started = Function(
        "app", "app.handler", [tmp_path, Path(botocore.__file__).parents[1]], {"AWS_DEFAULT_REGION": "x"}
    )
    yield started
    started.end()


def test_the_other_designs_are_compiled_or_nothing_is_measured(tmp_path: Path) -> None:
    """A fresh clone's packages have no .pyc files; with none, a row with .pyc would be of cold starts that compile."""
    with pytest.raises(WorkFailed, match="not compiled"):
        compile_all(tmp_path)
    (tmp_path / "package").mkdir()
    (tmp_path / "package/module.py").write_text("x = 1")
    compile_all(tmp_path)
    assert [path.name for path in tmp_path.rglob("*.pyc")] == ["module.cpython-313.pyc"]


def test_the_table_and_the_picture_show_the_stored_run(run: Run) -> None:
    """`make bench WRITE=1` writes all three: none of them is of another run."""
    assert in_markdown(run) in README.read_text()
    assert svg(run) == PICTURE.read_text()


def test_every_row_has_every_design(run: Run) -> None:
    """But a design that charges a duplicate again has no figure for duplicates."""
    for row in rows_of(run):
        missing = run.charges_again if row.what == "billed, 10 duplicates" else []
        assert set(row.figures) == set(DESIGNS) - set(missing), row.what


def test_where_ours_is_worse_the_row_says_what_it_buys(run: Run) -> None:
    """Whichever of the others is better."""
    worse = [row for row in rows_of(run) if row.figures[OURS] > min(row.figures.values())]
    assert worse
    assert [row.what for row in worse if not row.cells()[-1]] == []


def test_a_ratio_is_of_the_figures_that_the_row_shows(run: Run) -> None:
    """An order as the customer counts it: nothing is divided by how many requests a design makes."""
    run.fresh_ms[OURS], run.fresh_ms[POWERTOOLS] = [700, 750, 720], [3000, 3600, 3100]
    billed, calls, *_ = rows_of(run)
    assert billed.cells()[-4:-1] == ["720 ms", "0.23 of Powertools", "≤ 0.25: yes"]
    assert calls.cells()[-4:-1] == ["600 ms", "1.20 of it, for all ten", "≤ 1.2: yes"]


def test_an_invocation_is_counted_with_its_log_and_its_calls(function: Function) -> None:
    """No service but DynamoDB is called: the worker answers."""
    answer, took = function.invoke({"secret": True, "failures": []})
    assert answer == {"batchItemFailures": []}
    assert (took.function, took.log_bytes, took.calls) == ("app", 10, {"secretsmanager.GetSecretValue": 1})
    assert took.cpu_ms > 0


def test_a_function_that_raises_has_no_figures(function: Function) -> None:
    with pytest.raises(WorkFailed, match="KeyError: 'secret'"):
        function.invoke({})


@pytest.mark.parametrize(
    ("capacity", "units"),
    [
        ({"TableName": "A", "Table": {"CapacityUnits": 0.5}}, {"A": 0.5}),
        ([{"TableName": name, "Table": {"CapacityUnits": 2.0}} for name in "AB"], {"A": 2.0, "B": 2.0}),
        (
            {
                "TableName": "A",
                "Table": {"CapacityUnits": 1.0},
                "GlobalSecondaryIndexes": {"i": {"CapacityUnits": 2.0}},
            },
            {"A": 1.0, "A/i": 2.0},
        ),
        ([], {}),
    ],
)
def test_capacity_units_are_counted_by_table_and_index(capacity: Any, units: Mapping[str, float]) -> None:
    """As DynamoDB answers them: for one table, or as a list."""
    assert dict(consumed(capacity)) == units
