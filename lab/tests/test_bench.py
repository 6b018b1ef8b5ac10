"""`make bench`: the bill follows from what was counted, and a function that fails has no figures."""

import shutil
import subprocess
import sys
from pathlib import Path

import botocore
import pytest

from lab.bench.__main__ import COLD, DUPLICATES, FRESH, MEMORY, MILLION, table
from lab.bench.designs import DESIGNS, NAIVE, OURS, Function, Invocation, WorkFailed
from lab.bench.prices import VCPU_MB, Settings, dollars, settings_of
from tests.support.harness import PROJECT

_FUNCTION = """
import boto3

def handler(event, context):
    print("x" * 9)
    boto3.client(event["service"]).publish_batch(TopicArn="t", PublishBatchRequestEntries=[{"Id": "1", "Message": "m"}])
"""


def test_an_invocation_is_counted_with_its_log_and_its_requests(tmp_path: Path) -> None:
    """The worker answers for SNS. A function that raises has no figures, but ends the run with its error."""
    (tmp_path / "app.py").write_text(_FUNCTION)
    folders = [tmp_path, Path(botocore.__file__).parents[1]]
    function = Function("app", "app.handler", folders, {"AWS_DEFAULT_REGION": "x"})
    with function.process:
        took = function.invoke({"service": "sns"})
        assert (took.log, list(map(tuple, took.units)), took.sent) == ("x" * 9 + "\n", [("sns", 1)], ["m"])
        with pytest.raises(WorkFailed, match="KeyError: 'service'"):
            function.invoke({})


@pytest.mark.nightly
def test_the_whole_benchmark_runs() -> None:
    """All three designs charge each fresh order once, and the table has a figure for ours in each row."""
    if not (shutil.which("java") and (PROJECT / ".venv/opt/dynamodb-local").exists()):
        pytest.skip("DynamoDB Local needs Java, and npm to install it")
    command = [sys.executable, "-m", "lab.bench", "--rounds", "2"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()[2:]
    assert len(rows) == 5
    assert "again" not in "".join(rows)


@pytest.mark.parametrize(("memory_mb", "billed_ms"), [(VCPU_MB, 110), (2 * VCPU_MB, 110), (VCPU_MB / 4, 140)])
def test_a_bill_worked_by_hand(memory_mb: int, billed_ms: float) -> None:
    """A quarter of a vCPU computes four times as long, and waits as long; a second vCPU helps no thread of Python's."""
    units: list[tuple[str, float]] = [("write", 30), ("read", 10), ("sns", 1), ("sqs", 2)]
    step = Invocation("charge_order", wall_ms=110, cpu_ms=10, log="x" * 5000, units=units)
    settings = Settings("arm64", {"charge_order": memory_mb}, [("HTTP API", 1)], platform_log_kb=0)
    gb_seconds = billed_ms / 1000 * memory_mb / 1024
    batch = 0.20 + gb_seconds * 13.3334 + 30 * 0.625 + 10 * 0.125 + 0.50 + 2 * 0.40 + 5 * 0.50
    assert dollars([step], 10, settings) == pytest.approx(1.00 + batch / 10)


def test_the_others_are_billed_with_what_frameworks_choose() -> None:
    """Ours is billed as the template has it."""
    assert [name for name, _ in settings_of(NAIVE).order_units] == ["REST API"]
    assert [name for name, _ in settings_of(OURS).order_units] == ["HTTP API", "log KB"]


def test_the_table_shows_medians_as_ratios_within_the_run() -> None:
    """A design that charges a duplicate again has no figure for duplicates."""
    run = {design: {row: [2.0, 2.0, 90.0] for row in (FRESH, DUPLICATES, COLD, MEMORY, MILLION)} for design in DESIGNS}
    run[OURS][FRESH], run[NAIVE][DUPLICATES] = [1.0, 1.0, 0.0], []
    lines = [line.split() for line in table(run)]
    assert lines[1] == ["billed,", "10", "fresh", "orders", "1.00", "1.00", "0.50", "2", "ms"]
    assert lines[2][3:] == ["charges", "again", "1.00", "1.00", "2", "ms"]
