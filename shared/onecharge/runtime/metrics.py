"""CloudWatch metrics of one invocation, counted on several threads with Powertools Metrics."""

import sys
from collections.abc import Mapping
from threading import Lock
from typing import Any, Self

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider

from onecharge.runtime.alarms import Cause


class Metric(str):
    """A metric's name (a str) that also carries dimensions, unit and value.

    It has dimensions of its own instead of `service`.

    Args:
        dimensions: sets of them; CloudWatch keeps, and bills, one metric for each set of names and values.
        about: what else its line in the log says.
    """

    dimensions: tuple[Mapping[str, str], ...]
    value: float
    unit: MetricUnit
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


class Alarm(Metric):
    """The metric `Alarm` of one cause."""

    def __new__(cls, cause: Cause) -> Self:
        return super().__new__(cls, "Alarm", {"cause": cause})

    @property
    def cause(self) -> str:
        """Why a person has to act."""
        return self.dimensions[0]["cause"]


class Counts:
    """Writes metrics to the log in CloudWatch's embedded metric format: those of a function when the invocation ends,
    those with dimensions of their own immediately."""

    def __init__(self) -> None:
        self._metrics = Metrics()
        self._lock = Lock()  # Powertools does not lock its dictionaries.

    def __call__(self, name: str) -> None:
        """Count one occurrence of the metric of that name."""
        with self._lock:
            if isinstance(name, Metric):
                self._write(name)
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

    def _write(self, own: Metric) -> None:
        line = AmazonCloudWatchEMFProvider(namespace=self._metrics.namespace, service="")  # no dimension `service`
        line.add_metric(name=own, unit=own.unit, value=own.value)
        first, *others = own.dimensions
        for name, value in first.items():
            line.add_dimension(name, value)
        for each in others:
            line.add_dimensions(**each)
        for key, value in {"service": self._metrics.service, **own.about}.items():
            line.add_metadata(key, value)
        line.flush_metrics()
        sys.stdout.flush()  # Whatever is killed now has lost no alarm.
