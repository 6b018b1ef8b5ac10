"""publish_events: from the tables' streams to the topics. What is stored is published, however many tries it takes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Metrics

from onecharge.runtime.aws import client_config
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.metrics import Counts
from onecharge.runtime.topics import OrderServiceEvent, PublishedEvent, Topic
from publish_events.mapping import Tables

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


class NotPublished(Exception):
    """Some of the records are not published: the stream delivers the whole batch again, and duplicates are harmless."""


@dataclass(frozen=True)
class Publisher:
    """Publishes the events that the records of a batch stand for to the two topics."""

    tables: Tables
    order_events: Topic
    payment_events: Topic
    logger: Logger
    counts: Counts

    def publish(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Publish all of the records that can be published, whether or not the others fail.

        Raises:
            NotPublished: SNS refused some of the events, or some of the records can be no event. On AWS the batch is
                then tried again in halves, until what fails is alone (BisectBatchOnFunctionError).
        """
        failures: list[str] = []
        events = list(self._events_in(records, failures))
        for topic, wanted in (self.order_events, True), (self.payment_events, False):
            for failed in topic.publish([event for event in events if isinstance(event, OrderServiceEvent) is wanted]):
                failures.append(failed.code)
                if failed.is_permanent:
                    self._report_unpublishable(failed.event.subject, failed.code)
        if failures:
            raise NotPublished(f"{len(failures)} of {len(records)} records: {', '.join(sorted(set(failures)))}")

    def _events_in(self, records: Sequence[Mapping[str, Any]], failures: list[str]) -> Iterator[PublishedEvent]:
        for record in records:
            try:
                event = self.tables.event_from_record(record)
            except Exception as error:  # Whatever is wrong with the one, the others are published.
                failures.append(type(error).__name__)
                self._report_unpublishable(record["dynamodb"]["Keys"]["order_id"]["S"], type(error).__name__)
            else:
                if event is not None:
                    yield event

    def _report_unpublishable(self, order_id: str, error: str) -> None:
        """Reported with each try, until somebody has corrected the item."""
        self.counts("Alarm")
        self.logger.error(
            "unpublishable: no retry helps, correct the item", extra={"order_id": order_id, "error": error}
        )


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        logger = Logger()
        sns = boto3.client("sns", config=client_config())
        self.counts = Counts(Metrics())
        self.publisher = Publisher(
            tables=Tables(
                orders=environment["ORDERS_TABLE"],
                order_refunds=environment["ORDER_REFUNDS_TABLE"],
                payments=environment["PAYMENTS_TABLE"],
                refunds=environment["REFUNDS_TABLE"],
            ),
            order_events=Topic(sns, environment["ORDER_EVENTS_TOPIC_ARN"], logger, self.counts),
            payment_events=Topic(sns, environment["PAYMENT_EVENTS_TOPIC_ARN"], logger, self.counts),
            logger=logger,
            counts=self.counts,
        )


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> None:
    """Publish one batch of stream records; an error makes the stream deliver the batch again."""
    application.publisher.publish(event["Records"])
