"""publish_events: from the tables' streams to SNS. Whatever is stored is published, at least once.

    stream record ─► mapping.py: which event is it? ─► the topic of the event's service ─► SNS PublishBatch

An error makes Lambda retry the batch, in halves (BisectBatchOnFunctionError). What the stream gives up is still in its
table, where republish or reconcile finds it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Metrics

from onecharge.contract.events import ORDER_SERVICE, PAYMENT_SERVICE, Event
from onecharge.runtime.alarms import Cause
from onecharge.runtime.aws import client_config
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Alarm, Counts
from onecharge.runtime.self_check import topic_probe
from onecharge.runtime.topics import Topic
from publish_events.mapping import PublishedTables

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


class NotPublished(Exception):
    """Some of the records are not published. Lambda retries the whole batch; duplicates are harmless."""


@dataclass(frozen=True)
class Publisher:
    """Publishes a batch of stream records; `topics` has the topic of each service, by the `source` of its events."""

    tables: PublishedTables
    topics: Mapping[str, Topic]
    logger: Logger
    counts: Counts

    def publish(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Publish every record that can be published, whether or not others fail.

        Raises:
            NotPublished: SNS refused some of the events, or some of the records cannot be an event.
        """
        failures: list[str] = []
        events = list(self._events_in(records, failures))
        for source, topic in self.topics.items():
            for failed in topic.publish([event for event in events if event.source == source]):
                failures.append(failed.code)
                if failed.is_permanent:
                    self._report_unpublishable(failed.event.subject, failed.code)
        if failures:
            raise NotPublished(f"{len(failures)} of {len(records)} records: {', '.join(sorted(set(failures)))}")

    def _events_in(self, records: Sequence[Mapping[str, Any]], failures: list[str]) -> Iterator[Event]:
        for record in records:
            try:
                event = self.tables.event_from_record(record)
            except Exception as error:  # Whatever is wrong with this record, the others are published.
                failures.append(type(error).__name__)
                self._report_unpublishable(record["dynamodb"]["Keys"]["order_id"]["S"], type(error).__name__)
            else:
                if event is not None:
                    yield event

    def _report_unpublishable(self, order_id: str, error: str) -> None:
        """Reported with each retry, until the item is corrected."""
        self.counts(Alarm(Cause.UNPUBLISHABLE))
        self.logger.error(
            "unpublishable: no retry helps, correct the item",
            extra={"order_id": order_id, "error": error, "cause": Cause.UNPUBLISHABLE},
        )


class Application:
    """Everything that lives as long as the execution environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        logger = function_logger()
        sns = boto3.client("sns", config=client_config())
        self.counts = Counts(Metrics())
        self.publisher = Publisher(
            tables=PublishedTables.of(environment),
            topics={
                ORDER_SERVICE: Topic(sns, environment["ORDER_EVENTS_TOPIC_ARN"], logger, self.counts),
                PAYMENT_SERVICE: Topic(sns, environment["PAYMENT_EVENTS_TOPIC_ARN"], logger, self.counts),
            },
            logger=logger,
            counts=self.counts,
        )
        topics = ("ORDER_EVENTS_TOPIC_ARN", "PAYMENT_EVENTS_TOPIC_ARN")
        self.probes = {name: topic_probe(environment[name]) for name in topics}


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> None:
    """Publish one batch of stream records; an error makes the stream deliver the batch again."""
    application.publisher.publish(event["Records"])
