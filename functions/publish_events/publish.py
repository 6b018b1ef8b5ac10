"""Publishes stream records to SNS, at least once, and skips those that no retry can publish.

The ARN of a record's stream names its table; no attribute of the item does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.contract.events import Event
from onecharge.runtime.alarms import Cause
from onecharge.runtime.aws import error_code
from onecharge.runtime.metrics import Alarm, Counts
from onecharge.runtime.topics import Topic
from publish_events.mapping import EventFromItem

Record = Mapping[str, Any]
"""One record of a table's stream, as Lambda delivers it."""


class NotPublished(Exception):
    """Some of the records are not published. Lambda retries the whole batch; duplicates are harmless."""


def table_of(record: Record) -> str:
    """`orders` of `arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-11-01T00:00:00.000`."""
    return str(record["eventSourceARN"]).split("/")[1]


@dataclass(frozen=True)
class Publisher:
    """Publishes batches of stream records.

    `mappings` has the mapping of each table by its name, `topics` the topic of each service by the `source` of its
    events.
    """

    mappings: Mapping[str, EventFromItem]
    topics: Mapping[str, Topic]
    logger: Logger
    counts: Counts

    def publish(self, records: Sequence[Record]) -> None:
        """Publish every record that can be published, whether or not others fail; skip those that never can be.

        Raises:
            NotPublished: SNS did not accept some of the events.
        """
        failures: list[str] = []
        events = list(self._events_in(records))
        record_of = {id(event): record for record, event in events}
        for source, topic in self.topics.items():
            try:
                not_published = topic.publish([event for _, event in events if event.source == source])
            except (BotoCoreError, ClientError) as error:
                # A whole request failed: the other topic's events are published all the same.
                failures.append(error_code(error))
                continue
            failures += [failed.code for failed in not_published if not failed.is_permanent]
            for failed in not_published:
                if failed.is_permanent:
                    self._skip(record_of[id(failed.event)], failed.code)
        if failures:
            raise NotPublished(f"{len(failures)} of {len(records)} records: {', '.join(sorted(set(failures)))}")

    def _events_in(self, records: Sequence[Record]) -> Iterator[tuple[Record, Event]]:
        """Each record with its event. One without is not published: its item was deleted, or is no one's news."""
        for record in records:
            image = record["dynamodb"].get("NewImage")
            try:
                event = self.mappings[table_of(record)](image) if image else None
            except Exception as error:  # Whatever is wrong with this record, the others are published.
                self._skip(record, type(error).__name__)
            else:
                if event is not None:
                    yield record, event

    def _skip(self, record: Record, reason: str) -> None:
        """Leave a record out, which would otherwise block its shard for a day. Its item is still in the table."""
        self.counts(Alarm(Cause.UNEXPECTED_ERROR))
        key = {name: next(iter(value.values())) for name, value in record["dynamodb"]["Keys"].items()}
        self.logger.error(
            "unpublishable, skipped: no retry helps. Correct the release or the item: what waits is published again",
            extra={"table": table_of(record), **key, "error": reason, "cause": Cause.UNEXPECTED_ERROR},
        )
