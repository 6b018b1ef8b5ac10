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
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parts import Parts

@lambda_handler(Parts)
def handler(parts, event, context):
    for record in event["Records"]:
        if record == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        parts.counts(Alarm(Cause.HELD))

handler({"Records": ["held", "killed"]}, None)
"""
ENVIRONMENT = {
    "PYTHONPATH": str(PROJECT / "shared"),
    "POWERTOOLS_METRICS_NAMESPACE": "onecharge",
    "POWERTOOLS_SERVICE_NAME": "test",
}


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "onecharge")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "test")
    return Counts()


def test_a_flush_writes_what_was_recorded_since_the_last(counts: Counts, capsys: pytest.CaptureFixture[str]) -> None:
    """Each occurrence counts; a duration is in seconds."""
    counts("OrderPlaced")
    counts("OrderPlaced")
    counts.gauge("RowsBehindSeconds", 12.5)
    counts.flush()
    written: dict[str, Any] = json.loads(capsys.readouterr().out)
    [described] = written["_aws"]["CloudWatchMetrics"]
    units = {metric["Name"]: metric["Unit"] for metric in described["Metrics"]}
    assert (sum(written["OrderPlaced"]), written["RowsBehindSeconds"]) == (2, [12.5])
    assert units == {"OrderPlaced": "Count", "RowsBehindSeconds": "Seconds"}
    counts("OrderPlaced")
    counts.flush()
    assert json.loads(capsys.readouterr().out)["OrderPlaced"] == [1]


def test_a_metric_of_its_own_dimensions_has_a_line_of_its_own(
    counts: Counts, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the dimension `service`: its alarm is one for all functions. The line still says which function."""
    counts(Metric("StripeSeconds", {"endpoint": "GET /v1/x"}, {"status": "2xx"}, value=0.3, about={"id": "req_1"}))
    line = json.loads(capsys.readouterr().out)
    [described] = line["_aws"]["CloudWatchMetrics"]
    assert described == {
        "Namespace": "onecharge",
        "Dimensions": [["endpoint"], ["status"]],
        "Metrics": [{"Name": "StripeSeconds", "Unit": "Count"}],
    }
    about = {"endpoint": "GET /v1/x", "status": "2xx", "StripeSeconds": [0.3], "service": "test", "id": "req_1"}
    assert line == {"_aws": line["_aws"]} | about


@pytest.mark.parametrize("cause", Cause)
def test_an_alarm_is_counted_by_its_cause(counts: Counts, capsys: pytest.CaptureFixture[str], cause: Cause) -> None:
    """By its name alone it is the metric `Alarm`."""
    alarm = Alarm(cause)
    assert (alarm, alarm.cause) == ("Alarm", cause)
    counts(alarm)
    line = json.loads(capsys.readouterr().out)
    assert (line["Alarm"], line["cause"]) == ([1], cause.value)
    assert line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["cause"]]


def test_a_killed_invocation_has_lost_no_alarm() -> None:
    """Lambda kills it while the second record of its batch is handled: the first one's alarm is in the log."""
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, env=ENVIRONMENT)
    assert killed.returncode == -signal.SIGKILL
    [line] = [json.loads(each) for each in killed.stdout.splitlines()]
    assert (line["Alarm"], line["cause"]) == ([1], "Held")


def test_a_flush_of_nothing_writes_nothing(counts: Counts, capsys: pytest.CaptureFixture[str]) -> None:
    """Powertools would warn of it in the log of each invocation."""
    counts.flush()
    assert capsys.readouterr().out == ""
