"""Metrics: CloudWatch's embedded metric format, once for each flush."""

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from onecharge.runtime.alarms import Cause
from onecharge.runtime.metrics import Alarm, Counts, Metric
from tests.support.harness import PROJECT

KILLED = """
import os, signal
from onecharge.runtime.alarms import Cause
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parts import lambda_handler, Parts

@lambda_handler(Parts)
def handler(parts, event, context):
    parts.counts(Alarm(Cause.HELD))
    os.kill(os.getpid(), signal.SIGKILL)

handler({}, None)
"""
ENVIRONMENT = {"POWERTOOLS_METRICS_NAMESPACE": "onecharge", "POWERTOOLS_SERVICE_NAME": "test"}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    counts = Counts()
    counts.flush()  # Powertools keeps what another test has left in this process.
    return counts


def test_a_flush_writes_what_was_recorded_since_the_last(counts: Counts, capsys: pytest.CaptureFixture[str]) -> None:
    """Each occurrence counts; a duration is in seconds. One of nothing writes nothing: Powertools would warn of it."""
    counts("OrderPlaced")
    counts("OrderPlaced")
    counts.gauge("RowsBehindSeconds", 12.5)
    counts.flush()
    counts.flush()
    written: dict[str, Any] = json.loads(capsys.readouterr().out)
    [described] = written["_aws"]["CloudWatchMetrics"]
    units = {metric["Name"]: metric["Unit"] for metric in described["Metrics"]}
    assert (sum(written["OrderPlaced"]), written["RowsBehindSeconds"]) == (2, [12.5])
    assert units == {"OrderPlaced": "Count", "RowsBehindSeconds": "Seconds"}


ABOUT = {"id": "req_1"}


@pytest.mark.parametrize(
    ("metric", "dimensions", "value"),
    [
        (
            Metric("Seconds", {"endpoint": "GET"}, {"status": "2xx"}, value=0.3, about=ABOUT),
            [["endpoint"], ["status"]],
            0.3,
        ),
        *((Alarm(cause), [["cause"]], 1) for cause in Cause),
    ],
)
def test_a_metric_of_its_own_dimensions_has_a_line_of_its_own(
    counts: Counts, capsys: pytest.CaptureFixture[str], metric: Metric, dimensions: list[list[str]], value: float
) -> None:
    """Without the dimension `service`: its alarm is one for all functions. The line still says which function."""
    counts(metric)
    line = json.loads(capsys.readouterr().out)
    [described] = line.pop("_aws")["CloudWatchMetrics"]
    of_metric = {name: each for given in metric.dimensions for name, each in given.items()}
    metrics = [{"Name": str(metric), "Unit": "Count"}]
    assert described == {"Namespace": "onecharge", "Dimensions": dimensions, "Metrics": metrics}
    assert line == {**of_metric, metric: [value], "service": "test", **metric.about}


def test_a_killed_invocation_has_lost_no_alarm() -> None:
    """Lambda kills it while the second record of its batch is handled: the first one's alarm is in the log."""
    environment = {"PYTHONPATH": str(PROJECT / "shared"), **ENVIRONMENT}
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, env=environment)
    assert killed.returncode == -signal.SIGKILL
    [line] = [json.loads(each) for each in killed.stdout.splitlines()]
    assert (line["Alarm"], line["cause"]) == ([1], "Held")
