"""CloudWatch metrics of one invocation, counted on several threads with Powertools Metrics."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import batched
from threading import Lock
from typing import Any, Self

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit

from onecharge.runtime.alarms import Cause

_VALUES_MAX = 100
"""Values of a metric in one line (Amazon CloudWatch User Guide, "Specification: Embedded metric format")."""


class Metric(str):
    """The name of a metric, with what it is counted with: whoever only counts by name takes it as its name.

    It has dimensions of its own instead of `service`: an alarm or a graph is then one for all functions.

    Args:
        dimensions: sets of them; CloudWatch keeps, and bills, one metric for each set of names and values.
        about: what else its line in the log says. Without it, it shares a line with others of its name, unit and
            dimensions: nobody reads it by itself.
    """

    __slots__ = ("about", "dimensions", "unit", "value")

    value: float
    unit: MetricUnit
    dimensions: tuple[Mapping[str, str], ...]
    about: Mapping[str, Any]

    def __new__(
        cls,
        name: str,
        *dimensions: Mapping[str, str],
        value: float = 1,
        unit: MetricUnit = MetricUnit.Count,
        about: Mapping[str, Any] | None = None,
    ) -> Self:
        metric = super().__new__(cls, name)
        metric.dimensions, metric.value, metric.unit, metric.about = dimensions, value, unit, about or {}
        return metric

    def line(self, values: Sequence[float], *, namespace: str, service: str, timestamp_ms: int) -> dict[str, Any]:
        """Its line in the log, with its value or those of several like it (Amazon CloudWatch User Guide,
        "Specification: Embedded metric format")."""
        described = {
            "Namespace": namespace,
            "Dimensions": [[*names] for names in self.dimensions],
            "Metrics": [{"Name": str(self), "Unit": self.unit.value}],
        }
        line: dict[str, Any] = {"_aws": {"Timestamp": timestamp_ms, "CloudWatchMetrics": [described]}}
        for names in self.dimensions:
            line |= names
        return {**line, str(self): values[0] if len(values) == 1 else values, "service": service, **self.about}


class Alarm(Metric):
    """The metric `Alarm` of one cause."""

    __slots__ = ()

    def __new__(cls, cause: Cause) -> Self:
        return super().__new__(cls, "Alarm", {"cause": cause})

    @property
    def cause(self) -> str:
        """Why a person has to act."""
        return self.dimensions[0]["cause"]


class Counts:
    """Collects metrics, and writes them to the log in CloudWatch's embedded metric format."""

    def __init__(self, metrics: Metrics, *, clock: Callable[[], float] = time.time) -> None:
        self._metrics = metrics
        self._clock = clock
        # Powertools keeps its metrics in dictionaries and does not lock them.
        self._lock = Lock()
        self._own: list[tuple[int, Metric]] = []
        """The metrics of their own dimensions, each with when it was counted, in epoch milliseconds."""

    def __call__(self, name: str) -> None:
        """Count one occurrence of the metric of that name."""
        with self._lock:
            if isinstance(name, Metric):
                self._own.append((int(self._clock() * 1000), name))
            else:
                self._metrics.add_metric(name=name, unit=MetricUnit.Count, value=1)

    def gauge(self, name: str, seconds: float) -> None:
        """Record a duration as the metric of that name."""
        with self._lock:
            self._metrics.add_metric(name=name, unit=MetricUnit.Seconds, value=seconds)

    def flush(self) -> None:
        """Write what was recorded since the last flush, if anything."""
        with self._lock:
            if self._metrics.metric_set:
                self._metrics.flush_metrics()
            for line in self._lines():
                print(json.dumps(line, separators=(",", ":")))  # noqa: T201  # As Powertools writes its own.
            self._own.clear()

    def _lines(self) -> Iterator[dict[str, Any]]:
        """One for each metric that is about something, and one for all others that are alike."""
        alike: dict[object, list[tuple[int, Metric]]] = {}
        for number, (at, metric) in enumerate(self._own):
            alike.setdefault(number if metric.about else _likeness(at, metric), []).append((at, metric))
        for found in alike.values():
            for batch in batched(found, _VALUES_MAX, strict=False):
                at, metric = batch[0]
                yield metric.line(
                    [each.value for _, each in batch],
                    namespace=str(self._metrics.namespace),
                    service=str(self._metrics.service),
                    timestamp_ms=at,
                )


def _likeness(at: int, metric: Metric) -> object:
    """What metrics have in common that share a line: the minute, too, since CloudWatch's periods are minutes."""
    dimensions = tuple(tuple(sorted(names.items())) for names in metric.dimensions)
    return at // 60_000, str(metric), metric.unit, dimensions
