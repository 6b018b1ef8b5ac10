"""The shim that evaluates alarms locally, held against the examples of the Amazon CloudWatch User Guide."""

import json
from dataclasses import replace
from typing import Any

import pytest

from testing.alarm_evaluation import Definition, Sample, datapoints, state_of
from testing.alarms import samples_in

DESCRIBED: dict[str, Any] = {
    "AlarmName": "shop-X",
    "Namespace": "onecharge/shop",
    "MetricName": "Alarm",
    "Dimensions": [{"Name": "cause", "Value": "Overdue"}],
    "Statistic": "Sum",
    "Period": 60,
    "EvaluationPeriods": 3,
    "ComparisonOperator": "GreaterThanOrEqualToThreshold",
    "Threshold": 1.0,
    "TreatMissingData": "notBreaching",
}
THREE_OF_THREE = Definition.of(DESCRIBED)
TWO_OF_THREE = Definition.of({**DESCRIBED, "DatapointsToAlarm": 2})
"""The guide's two alarms, each with five datapoints in its evaluation range."""


@pytest.mark.parametrize(
    ("definition", "range_", "breaching", "not_breaching"),
    [
        (THREE_OF_THREE, "0 - X - X", "OK", "OK"),
        (THREE_OF_THREE, "0 - - - -", "OK", "OK"),
        (THREE_OF_THREE, "- - - - -", "ALARM", "OK"),
        (THREE_OF_THREE, "0 X X - X", "ALARM", "ALARM"),
        (THREE_OF_THREE, "- - - - X", "ALARM", "OK"),
        (THREE_OF_THREE, "X - - - -", "ALARM", "OK"),
        (TWO_OF_THREE, "0 - X - X", "ALARM", "ALARM"),
        (TWO_OF_THREE, "0 0 X 0 X", "ALARM", "ALARM"),
        (TWO_OF_THREE, "0 - X - -", "ALARM", "OK"),
        (TWO_OF_THREE, "- - - - 0", "ALARM", "OK"),
        (TWO_OF_THREE, "- - - - X", "ALARM", "OK"),
    ],
)
def test_missing_data_is_treated_as_in_the_guides_tables(
    definition: Definition, range_: str, breaching: str, not_breaching: str
) -> None:
    """0 is a datapoint that is not breaching, X a breaching one, and - a missing one."""
    values = [{"0": 0.0, "X": 1.0, "-": None}[each] for each in range_.split()]
    assert state_of(replace(definition, missing_is_breaching=True), values) == breaching
    assert state_of(replace(definition, missing_is_breaching=False), values) == not_breaching


def test_what_is_older_than_the_evaluation_periods_does_not_count() -> None:
    """With no data missing the most recent datapoints are evaluated, as many as EvaluationPeriods."""
    assert state_of(THREE_OF_THREE, [1, 1, 1, 0, 0]) == "OK"
    assert state_of(THREE_OF_THREE, [0, 0, 1, 1, 1]) == "ALARM"


def test_a_datapoint_is_the_statistic_of_its_period() -> None:
    """Periods begin at multiples of their length; what is older than the range is not evaluated."""
    samples = [Sample(59, 100), Sample(60, 1), Sample(119, 2), Sample(240, 5), Sample(241, 7), Sample(359, 1)]
    assert datapoints(THREE_OF_THREE, samples, now=359) == [3, None, None, 12, 1]
    assert datapoints(replace(THREE_OF_THREE, statistic="Maximum"), samples, now=359) == [2, None, None, 7, 1]
    assert datapoints(replace(THREE_OF_THREE, statistic="SampleCount"), samples, now=359) == [2, None, None, 2, 1]


@pytest.mark.parametrize(
    ("comparison", "states"),
    [
        ("GreaterThanThreshold", ["OK", "OK", "ALARM"]),
        ("GreaterThanOrEqualToThreshold", ["OK", "ALARM", "ALARM"]),
        ("LessThanThreshold", ["ALARM", "OK", "OK"]),
        ("LessThanOrEqualToThreshold", ["ALARM", "ALARM", "OK"]),
    ],
)
def test_the_threshold_is_compared_as_the_alarm_says(comparison: str, states: list[str]) -> None:
    """Below it, at it, above it."""
    definition = replace(THREE_OF_THREE, comparison=comparison, threshold=2)
    assert [state_of(definition, [value] * 5) for value in (1, 2, 3)] == states


@pytest.mark.parametrize("changes", [{"TreatMissingData": "ignore"}, {"Statistic": "Average"}])
def test_what_is_not_known_here_is_not_guessed(changes: dict[str, str]) -> None:
    """An alarm that uses more than this shim knows fails the run."""
    with pytest.raises(ValueError, match="shop-X"):
        Definition.of({**DESCRIBED, **changes})


def test_a_line_in_embedded_metric_format_is_a_sample_of_each_of_its_dimension_sets() -> None:
    """As CloudWatch extracts it: one metric for each set, with all values."""
    line = {
        "_aws": {
            "Timestamp": 5000,
            "CloudWatchMetrics": [
                {"Namespace": "n", "Dimensions": [["endpoint"], ["status"]], "Metrics": [{"Name": "StripeSeconds"}]}
            ],
        },
        "endpoint": "GET /v1/x",
        "status": "2xx",
        "StripeSeconds": [0.5, 0.75],
    }
    found = list(samples_in(json.dumps(line)))
    assert [identity["Dimensions"] for identity, _ in found] == [
        {"endpoint": "GET /v1/x"},
        {"endpoint": "GET /v1/x"},
        {"status": "2xx"},
        {"status": "2xx"},
    ]
    assert [sample for _, sample in found] == [Sample(5, 0.5), Sample(5, 0.75)] * 2


@pytest.mark.parametrize("line", ["not JSON", "[]", '{"message": "an order was placed"}', "3"])
def test_any_other_line_is_no_metric(line: str) -> None:
    """Whatever a function logs."""
    assert list(samples_in(line)) == []
