"""`make costs`: what a million paid orders cost on AWS, beside the naive loop; which lever gives what."""

from benchmarks.costs.bill import COMPOSITE_ALARMS, METRIC_ALARMS, dollars_per_million

__all__ = ["COMPOSITE_ALARMS", "METRIC_ALARMS", "dollars_per_million"]
