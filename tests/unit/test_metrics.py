"""Metrics: CloudWatch's embedded metric format, once for each flush."""

import json
import re
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
from onecharge.runtime.metrics import Alarm, Counts

class Application:
    def __init__(self, environment):
        self.counts = Counts()

@lambda_handler(Application)
def handler(application, event, context):
    for record in event["Records"]:
        if record == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        application.counts(Alarm(Cause.NEEDS_REVIEW))

handler({"Records": ["needs review", "killed"]}, None)
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
    assert (line["Alarm"], line["cause"]) == ([1], "NeedsReview")


def test_a_flush_of_nothing_writes_nothing(counts: Counts, capsys: pytest.CaptureFixture[str]) -> None:
    """Powertools would warn of it in the log of each invocation."""
    counts.flush()
    assert capsys.readouterr().out == ""


# ---------------------------------------------------------------- docs/metrics.md


SOURCE = "\n".join(path.read_text() for name in ("functions", "shared") for path in (PROJECT / name).rglob("*.py"))


def counted() -> set[str]:
    """The names of all metrics that the code counts, as regular expressions: `Reconciled.{…}` has a part in braces."""
    takes_a_metric = re.findall(r"def (\w+)\([^()]*\bmetric: str", SOURCE)
    calls = "|".join(["_?counts?", "_?gauge", "Metric", *takes_a_metric])
    names = re.findall(rf'\b(?:{calls})\((?:[\w.]+, )*\s*f?"([^"]+)"(?:.* else f?"([^"]+)")?', SOURCE)
    return {"Alarm", *(pattern_of(name) for each in names for name in each if name)}


def pattern_of(name: str) -> str:
    """A part in braces is only known at run time, but for whose row it is."""
    parts = re.split(r"(\{[^}]+\})", name.replace("{row.subject}", "(Payment|Refund)"))
    return "".join(r"\{\w+\}" if part.startswith("{") else part for part in parts)


def test_what_is_counted_is_named_where_it_is_counted() -> None:
    """As a text, or as a parameter `metric` whose texts are found: else the next test would not see it."""
    known = r'f?"|Alarm\(|Metric\(|metric\)|stripe_request\('
    assert re.findall(rf"\b(?:_?counts?|_?gauge)\((?!{known}).*", re.sub(r"def \w+\(", "", SOURCE)) == []


def test_every_metric_is_documented_and_no_other() -> None:
    """docs/metrics.md has one entry for each name that the code counts."""
    rows = [line.split("|")[1] for line in (PROJECT / "docs/metrics.md").read_text().splitlines() if line[:3] == "| `"]
    documented = [name for row in rows for name in re.findall(r"`(.+?)`", row)]
    patterns = counted()
    assert sorted(set(documented)) == sorted(documented)
    assert [name for name in documented if not any(re.fullmatch(each, name) for each in patterns)] == []
    assert [each for each in patterns if not any(re.fullmatch(each, name) for name in documented)] == []
