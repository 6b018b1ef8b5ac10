"""publish_events: from the tables' streams to the topics. What is stored is published, however often it takes."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import batched
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Metrics

from onecharge.aws import client_config
from onecharge.events import EVENT_TYPE_ATTRIBUTE, OrderPlacedEvent
from onecharge.metrics import Counts
from publish_events.facts import PublishedEvent, event_in

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sns.type_defs import PublishBatchRequestEntryTypeDef

_ENTRIES_MAX = 10
"""Entries of one PublishBatch call (Amazon SNS API Reference, PublishBatch)."""


class NotPublished(Exception):
    """SNS refused some of the events: the stream delivers the whole batch again, which harms nobody."""


@dataclass(frozen=True)
class Publisher:
    """The two topics through boto3's client."""

    client: "SNSClient"
    order_events_topic_arn: str
    payment_events_topic_arn: str
    logger: Logger
    counts: Counts

    def publish(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Publish what the records stand for. Raises NotPublished unless SNS took all of it."""
        events = [event for record in records if (event := event_in(record)) is not None]
        orders = [event for event in events if isinstance(event, OrderPlacedEvent)]
        outcomes = [event for event in events if not isinstance(event, OrderPlacedEvent)]
        refused = [
            *self._publish_to(self.order_events_topic_arn, orders),
            *self._publish_to(self.payment_events_topic_arn, outcomes),
        ]
        if refused:
            raise NotPublished(f"{len(refused)} of {len(events)} events refused: {', '.join(sorted(set(refused)))}")

    def _publish_to(self, topic_arn: str, events: Sequence[PublishedEvent]) -> list[str]:
        refused = []
        for batch in batched(events, _ENTRIES_MAX, strict=False):
            entries = [_entry(str(place), event) for place, event in enumerate(batch)]
            answer = self.client.publish_batch(TopicArn=topic_arn, PublishBatchRequestEntries=entries)
            for entry in answer["Successful"]:
                self._log(batch[int(entry["Id"])])
            # PublishBatch answers 200 even if it took nothing: each entry has its own fate.
            refused += [entry["Code"] for entry in answer["Failed"]]
        return refused

    def _log(self, event: PublishedEvent) -> None:
        self.counts("EventPublished")
        self.logger.info(
            "event published",
            extra={
                "event_type": event.type,
                "order_id": event.data.order_id,
                "attempt": event.data.attempt,
                "correlation_id": event.correlationid,
            },
        )


def _entry(entry_id: str, event: PublishedEvent) -> "PublishBatchRequestEntryTypeDef":
    return {
        "Id": entry_id,
        "Message": event.model_dump_json(exclude_none=True),
        "MessageAttributes": {EVENT_TYPE_ATTRIBUTE: {"DataType": "String", "StringValue": event.type}},
    }


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.counts = Counts(Metrics())
        self.publisher = Publisher(
            client=boto3.client("sns", config=client_config()),
            order_events_topic_arn=environment["ORDER_EVENTS_TOPIC_ARN"],
            payment_events_topic_arn=environment["PAYMENT_EVENTS_TOPIC_ARN"],
            logger=Logger(),
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
