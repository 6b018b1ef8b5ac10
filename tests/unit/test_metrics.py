"""Metrics: CloudWatch's embedded metric format, once for each flush."""

import ast
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from onecharge.runtime.alarms import Cause
from onecharge.runtime.metrics import Alarm, Counts, Metric
from testing.harness import PROJECT

MODULES = [ast.parse(path.read_text()) for name in ("functions", "shared") for path in (PROJECT / name).rglob("*.py")]


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


def subjects() -> Iterator[str]:
    """What the metrics of a row begin with."""
    for module in MODULES:
        for each in ast.walk(module):
            match each:
                case ast.AnnAssign(ast.Name("subject"), _, ast.Constant(str(subject))):
                    yield subject


def pattern_of(name: ast.expr) -> Iterator[str]:
    """A metric's name as an expression has it, as a regular expression; a part in braces is only known at run time."""
    match name:
        case ast.Constant(str(text)):
            yield re.escape(text)
        case ast.IfExp(_, one, other):
            yield from pattern_of(one)
            yield from pattern_of(other)
        case ast.JoinedStr(parts):
            yield "".join(map(_pattern_of_part, parts))
        case ast.Call(ast.Name("Alarm")):
            yield "Alarm"
        case ast.Call():
            pass  # Makes a Metric of its own dimensions: `own_metrics` finds its name.
        case ast.Name("metric"):
            pass  # A parameter: `passed_on` finds what is given for it.
        case _:
            pytest.fail(f"line {name.lineno}: not a name of a metric that a test can read: {ast.unparse(name)}")


def _pattern_of_part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return re.escape(str(part.value))
    is_subject = isinstance(part, ast.FormattedValue) and ast.unparse(part.value) == "row.subject"
    return f"({'|'.join(subjects())})" if is_subject else r"\{\w+\}"


def passed_on(module: ast.Module) -> Iterator[ast.expr]:
    """What the module's calls give for a parameter called `metric`, and its default."""
    for function in ast.walk(module):
        if isinstance(function, ast.FunctionDef) and "metric" in (names := [each.arg for each in function.args.args]):
            index = names.index("metric")
            without_default = len(names) - len(function.args.defaults)
            yield from function.args.defaults[index - without_default :][:1] if index >= without_default else []
            for call in (each for each in ast.walk(module) if isinstance(each, ast.Call)):
                if isinstance(call.func, ast.Attribute) and call.func.attr == function.name:
                    yield from call.args[index - 1 : index]  # The first is self.


def own_metrics() -> Iterator[str]:
    """The names of the metrics that have dimensions of their own, instead of the service."""
    for module in MODULES:
        for each in ast.walk(module):
            match each:
                case ast.Call(ast.Name("Metric"), [ast.Constant(str(name)), *_]):
                    yield name


def counted() -> set[str]:
    """The names of all metrics that the code counts, as regular expressions."""
    found = set(own_metrics())
    for module in MODULES:
        for call in (each for each in ast.walk(module) if isinstance(each, ast.Call)):
            if re.search(r"\b_?(counts?|gauge)$", ast.unparse(call.func)):
                found.update(pattern_of(call.args[0]))
        for name in passed_on(module):
            found.update(pattern_of(name))
    return found


def test_every_metric_is_documented_and_no_other() -> None:
    """docs/metrics.md has one entry for each name that the code counts."""
    rows = [line.split("|")[1] for line in (PROJECT / "docs/metrics.md").read_text().splitlines() if line[:3] == "| `"]
    documented = [name for row in rows for name in re.findall(r"`(.+?)`", row)]
    patterns = counted()
    assert sorted(set(documented)) == sorted(documented)
    assert [name for name in documented if not any(re.fullmatch(each, name) for each in patterns)] == []
    assert [each for each in patterns if not any(re.fullmatch(each, name) for name in documented)] == []
