"""Metrics from several threads at once, with Powertools Metrics."""

from threading import Lock

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit


class Counts:
    """Counts of one invocation, written in CloudWatch's embedded metric format when it ends."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        # Powertools keeps its metrics in plain dictionaries, which threads must not change at once.
        self._lock = Lock()

    def __call__(self, name: str) -> None:
        """Count one occurrence of the metric of that name."""
        with self._lock:
            self._metrics.add_metric(name=name, unit=MetricUnit.Count, value=1)

    def gauge(self, name: str, seconds: float) -> None:
        """Record so many seconds as the metric of that name."""
        with self._lock:
            self._metrics.add_metric(name=name, unit=MetricUnit.Seconds, value=seconds)

    def flush(self) -> None:
        """Write what was counted since the last flush; nothing counted, nothing written."""
        with self._lock:
            if self._metrics.metric_set:
                self._metrics.flush_metrics()
