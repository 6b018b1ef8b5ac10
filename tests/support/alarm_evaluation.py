"""CloudWatch's evaluation of an alarm, pure: from the datapoints of a metric to the alarm's state.

Source: Amazon CloudWatch User Guide, "Alarm evaluation" and "Configuring how CloudWatch alarms treat missing data".
Only what monitoring.yaml uses is here: the four statistics, and missing data as breaching or as not breaching.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

EXTRA_PERIODS = 2
"""So many datapoints more than it evaluates CloudWatch retrieves, to fill in for missing ones. The guide's examples
have five for three; it does not say the number for others."""

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}
_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "Sum": sum,
    "Maximum": max,
    "Minimum": min,
    "SampleCount": len,
}


@dataclass(frozen=True)
class Definition:
    """What an alarm watches, and when it is in ALARM; as DescribeAlarms shows it."""

    name: str
    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    statistic: str
    period_seconds: float
    evaluation_periods: int
    datapoints_to_alarm: int
    comparison: str
    threshold: float
    missing_is_breaching: bool

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Self:
        """Raises KeyError, ValueError: it uses what is not here."""
        missing = described["TreatMissingData"]
        if missing not in ("breaching", "notBreaching") or described["Statistic"] not in _STATISTICS:
            raise ValueError(f"{described['AlarmName']}: {missing}, {described['Statistic']}")
        return cls(
            name=described["AlarmName"],
            namespace=described["Namespace"],
            metric=described["MetricName"],
            dimensions={each["Name"]: each["Value"] for each in described["Dimensions"]},
            statistic=described["Statistic"],
            period_seconds=described["Period"],
            evaluation_periods=described["EvaluationPeriods"],
            datapoints_to_alarm=described.get("DatapointsToAlarm", described["EvaluationPeriods"]),
            comparison=described["ComparisonOperator"],
            threshold=described["Threshold"],
            missing_is_breaching=missing == "breaching",
        )

    def is_breaching(self, datapoint: float) -> bool:
        """Whether it is beyond the threshold."""
        return _COMPARISONS[self.comparison](datapoint, self.threshold)


@dataclass(frozen=True)
class Sample:
    """One value of a metric."""

    at: float
    """Epoch seconds."""
    value: float


def datapoints(definition: Definition, samples: Sequence[Sample], *, now: float) -> list[float | None]:
    """The evaluation range: one datapoint for each period, the oldest first; None where there was no sample.

    Periods begin at multiples of their length. The one that is under way counts, so that an alarm is seen at once.
    """
    count = definition.evaluation_periods + EXTRA_PERIODS
    last = now // definition.period_seconds
    periods: list[list[float]] = [[] for _ in range(count)]
    for sample in samples:
        index = count - 1 - int(last - sample.at // definition.period_seconds)
        if 0 <= index < count:
            periods[index].append(sample.value)
    return [float(_STATISTICS[definition.statistic](values)) if values else None for values in periods]


def state_of(definition: Definition, evaluation_range: Sequence[float | None]) -> str:
    """ALARM or OK.

    The latest real datapoints are evaluated, as many as EvaluationPeriods. What they lack is filled in by what missing
    data means. ALARM takes DatapointsToAlarm of them that are breaching.
    """
    real = [definition.is_breaching(each) for each in evaluation_range if each is not None]
    evaluated = real[-definition.evaluation_periods :]
    filled_in = [definition.missing_is_breaching] * (definition.evaluation_periods - len(evaluated))
    return "ALARM" if sum(evaluated + filled_in) >= definition.datapoints_to_alarm else "OK"
