"""A shim for a gap of the emulator: it evaluates no alarm on what the functions log, on queues, or by a dimension.

It reads the deployed alarms from CloudWatch, computes their metrics from what really happened on this machine, and sets
their states. The emulator then evaluates the composite alarms by their rules. Periods are shortened, since nobody waits
20 minutes: `speed` says by how much. On AWS none of this is used.

    metric of                         its source here
    onecharge/STACK                   the lines in embedded metric format in the functions' logs
    AWS/SQS, visible messages         the queue's attributes, at each evaluation
    AWS/Lambda                        the emulator counts the invocations of each function, and which failed
    AWS/SQS, age of the oldest        none: no queue reports it
    AWS/Lambda, IteratorAge           none
    AWS/ApiGateway                    none

An alarm without a source is not evaluated: `without_source` names it.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from local.emulator import Emulator
from local.observe import log_events
from tests.support.alarm_evaluation import EXTRA_PERIODS, Definition, Sample, datapoints, state_of

SPEED = 60
"""A minute is a second."""
_COUNTED = {"Invocations", "Errors", "Throttles"}


class Alarms:
    """The alarms of a deployed stack."""

    def __init__(self, emulator: Emulator, stack_name: str, *, speed: float = SPEED) -> None:
        self._cloudwatch, self._logs = emulator.client("cloudwatch"), emulator.client("logs")
        self._sqs = emulator.client("sqs")
        self._prefix, self._speed = f"{stack_name}-", speed
        self._visible: dict[str, list[Sample]] = {}
        self._since = time.time()

    def evaluate(self) -> dict[str, str]:
        """Evaluate every alarm that has a source, set its state, and return all states, by logical id."""
        now = time.time()
        alarms = [(alarm, self._definition(alarm)) for alarm in self._metric_alarms()]
        logged = list(self._logged(now, [definition for _, definition in alarms]))
        for alarm, definition in alarms:
            samples = self._samples(definition, logged, now)
            if samples is None:
                continue
            state = state_of(definition, datapoints(definition, samples, now=now))
            if state != alarm["StateValue"]:
                self._cloudwatch.set_alarm_state(
                    AlarmName=definition.name, StateValue=state, StateReason="evaluated by tests/support/alarms.py"
                )
        return self.states()

    def states(self) -> dict[str, str]:
        """The present state of each alarm, composite ones included, by logical id."""
        alarms = [*self._metric_alarms(), *self._described("CompositeAlarm")]
        return {each["AlarmName"].removeprefix(self._prefix): each["StateValue"] for each in alarms}

    def without_source(self) -> list[str]:
        """The logical ids of the alarms that cannot be evaluated here."""
        alarms = [self._definition(each) for each in self._metric_alarms()]
        return sorted(each.name.removeprefix(self._prefix) for each in alarms if not _has_source(each))

    # ------------------------------------------------------------ what is watched

    def _metric_alarms(self) -> list[dict[str, Any]]:
        return self._described("MetricAlarm")

    def _described(self, kind: str) -> list[dict[str, Any]]:
        pages = self._cloudwatch.get_paginator("describe_alarms").paginate(
            AlarmTypes=[kind], AlarmNamePrefix=self._prefix
        )
        return [each for page in pages for each in page[f"{kind}s"]]

    def _definition(self, described: Mapping[str, Any]) -> Definition:
        definition = Definition.of(described)
        return replace(definition, period_seconds=definition.period_seconds / self._speed)

    # ------------------------------------------------------------ what happened

    def _samples(
        self, definition: Definition, logged: Sequence[tuple[Mapping[str, Any], Sample]], now: float
    ) -> list[Sample] | None:
        """None if there is no source."""
        if not _has_source(definition):
            return None
        if definition.namespace == "AWS/SQS":
            return self._visible_messages(definition, now)
        if definition.namespace == "AWS/Lambda":
            return self._counted_by_the_emulator(definition, now)
        wanted = {
            "Namespace": definition.namespace,
            "MetricName": definition.metric,
            "Dimensions": definition.dimensions,
        }
        return [sample for metric, sample in logged if metric == wanted]

    def _logged(self, now: float, definitions: Sequence[Definition]) -> Iterator[tuple[Mapping[str, Any], Sample]]:
        """Every value that a function has logged in the embedded metric format, with its metric."""
        longest = max(each.period_seconds * (each.evaluation_periods + EXTRA_PERIODS) for each in definitions)
        since_ms = int(max(self._since, now - longest) * 1000)
        for group in self._logs.get_paginator("describe_log_groups").paginate().search("logGroups[].logGroupName"):
            for event in log_events(self._logs, group, since_ms=since_ms):
                yield from samples_in(event["message"])

    def _visible_messages(self, definition: Definition, now: float) -> list[Sample]:
        queue = definition.dimensions["QueueName"]
        url = self._sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        attributes = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
        visible = self._visible.setdefault(queue, [])
        visible.append(Sample(now, float(attributes["Attributes"]["ApproximateNumberOfMessages"])))
        return visible

    def _counted_by_the_emulator(self, definition: Definition, now: float) -> list[Sample]:
        found = self._cloudwatch.get_metric_statistics(
            Namespace=definition.namespace,
            MetricName=definition.metric,
            Dimensions=[{"Name": name, "Value": value} for name, value in definition.dimensions.items()],
            StartTime=datetime.fromtimestamp(self._since, UTC),
            EndTime=datetime.fromtimestamp(now + 1, UTC),
            Period=1,
            Statistics=["Sum"],
        )
        return [Sample(each["Timestamp"].timestamp(), each["Sum"]) for each in found["Datapoints"]]


def samples_in(line: str) -> Iterator[tuple[Mapping[str, Any], Sample]]:
    """The metrics that a line of a log holds (Amazon CloudWatch User Guide, "Embedded metric format")."""
    try:
        written = json.loads(line)
        described = written["_aws"]["CloudWatchMetrics"]
    except (ValueError, KeyError, TypeError):
        return
    for group in described:
        for names in group["Dimensions"]:
            for metric in group["Metrics"]:
                identity = {
                    "Namespace": group["Namespace"],
                    "MetricName": metric["Name"],
                    "Dimensions": {name: written[name] for name in names},
                }
                values = written[metric["Name"]]
                for value in values if isinstance(values, list) else [values]:
                    yield identity, Sample(written["_aws"]["Timestamp"] / 1000, float(value))


def _has_source(definition: Definition) -> bool:
    match definition.namespace, definition.metric:
        case "AWS/SQS", metric:
            return metric == "ApproximateNumberOfMessagesVisible"
        case "AWS/Lambda", metric:
            return metric in _COUNTED
        case namespace, _:
            return not namespace.startswith("AWS/")
