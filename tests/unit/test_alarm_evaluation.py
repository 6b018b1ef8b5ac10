"""The shim that evaluates alarms locally, held against the examples of the Amazon CloudWatch User Guide."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.alarm_evaluation import Definition, state_of

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


@pytest.mark.parametrize("changes", [{"TreatMissingData": "ignore"}, {"Statistic": "Average"}])
def test_what_is_not_known_here_is_not_guessed(changes: dict[str, str]) -> None:
    """An alarm that uses more than this shim knows fails the run."""
    with pytest.raises(ValueError, match="shop-X"):
        Definition.of({**DESCRIBED, **changes})
