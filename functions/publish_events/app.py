"""publish_events: from the tables' streams to the topics. What is stored is published, however often it takes."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Metrics

from onecharge.aws import client_config
from onecharge.events import OrderPlacedEvent, RefundRequestedEvent
from onecharge.metrics import Counts
from onecharge.topics import PublishedEvent, Topic
from publish_events.facts import event_in

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


_ORDER_EVENTS = (OrderPlacedEvent, RefundRequestedEvent)
"""What the order service has to say; all else is the payment service's."""


class NotPublished(Exception):
    """Some of the records are not published: the stream delivers the whole batch again, which harms nobody."""


@dataclass(frozen=True)
class Publisher:
    """What the records of a batch stand for, brought to the two topics."""

    order_events: Topic
    payment_events: Topic
    logger: Logger
    counts: Counts

    def publish(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Publish all that can be published of the records, whatever becomes of the others.

        Raises:
            NotPublished: SNS refused some of the events, or some of the records can be no event. On AWS the batch is
                then tried again in halves, until what fails is alone (BisectBatchOnFunctionError).
        """
        failures: list[str] = []
        events = list(self._events_in(records, failures))
        for topic, wanted in (self.order_events, True), (self.payment_events, False):
            for refused in topic.publish([event for event in events if isinstance(event, _ORDER_EVENTS) is wanted]):
                failures.append(refused.code)
                if refused.for_good:
                    self._report(refused.event.subject, refused.code)
        if failures:
            raise NotPublished(f"{len(failures)} of {len(records)} records: {', '.join(sorted(set(failures)))}")

    def _events_in(self, records: Sequence[Mapping[str, Any]], failures: list[str]) -> Iterator[PublishedEvent]:
        for record in records:
            try:
                event = event_in(record)
            except Exception as error:  # Whatever is wrong with the one, the others are published.
                failures.append(type(error).__name__)
                self._report(record["dynamodb"]["Keys"]["order_id"]["S"], type(error).__name__)
            else:
                if event is not None:
                    yield event

    def _report(self, order_id: str, error: str) -> None:
        """No retry helps this one: somebody has to look at the item."""
        self.counts("Alarm")
        self.logger.error("can never be published", extra={"order_id": order_id, "error": error})


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        logger = Logger()
        sns = boto3.client("sns", config=client_config())
        self.counts = Counts(Metrics())
        self.publisher = Publisher(
            order_events=Topic(sns, environment["ORDER_EVENTS_TOPIC_ARN"], logger, self.counts),
            payment_events=Topic(sns, environment["PAYMENT_EVENTS_TOPIC_ARN"], logger, self.counts),
            logger=logger,
            counts=self.counts,
        )


@cache
def _application() -> Application:
    return Application(os.environ)


def handler(event: dict[str, Any], context: "LambdaContext") -> None:
    """Publish one batch of stream records; an error makes the stream deliver the batch again."""
    application = _application()
    try:
        application.publisher.publish(event["Records"])
    finally:
        application.counts.flush()
