"""CloudWatch metrics of one invocation, counted on several threads with Powertools Metrics."""

from threading import Lock

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit


class Counts:
    """Collects metrics, and writes them to the log in CloudWatch's embedded metric format."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        # Powertools keeps its metrics in dictionaries and does not lock them.
        self._lock = Lock()

    def __call__(self, name: str) -> None:
        """Count one occurrence of the metric of that name."""
        with self._lock:
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
