"""Metrics: CloudWatch's embedded metric format, once for each flush."""

import json
from typing import Any

import pytest
from aws_lambda_powertools import Metrics

from onecharge.runtime.metrics import Counts


@pytest.fixture
def counts() -> Counts:
    return Counts(Metrics(namespace="onecharge", service="test"))


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


def test_a_flush_of_nothing_writes_nothing(counts: Counts, capsys: pytest.CaptureFixture[str]) -> None:
    """Powertools would warn of it in the log of each invocation."""
    counts.flush()
    assert capsys.readouterr().out == ""
