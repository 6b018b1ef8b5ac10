"""Publishes stream records to SNS, at least once, and skips those that no retry can publish."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.contract.events import Event
from onecharge.runtime.alarms import Cause
from onecharge.runtime.aws import error_code
from onecharge.runtime.metrics import Alarm, Counts
from onecharge.runtime.topics import Topic
from publish_events.mapping import EventFromItem, Record, event_from_record, table_of


class NotPublished(Exception):
    """Some of the records are not published. Lambda retries the whole batch; duplicates are harmless."""


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
        for source, topic in self.topics.items():
            of_service = [(record, event) for record, event in events if event.source == source]
            record_of = {id(event): record for record, event in of_service}
            try:
                not_published = topic.publish([event for _, event in of_service])
            except (BotoCoreError, ClientError) as error:
                # A whole request failed: the other topic's events are published all the same.
                failures.append(error_code(error))
                continue
            for failed in not_published:
                if failed.is_permanent:
                    self._skip(record_of[id(failed.event)], failed.code)
                else:
                    failures.append(failed.code)
        if failures:
            raise NotPublished(f"{len(failures)} of {len(records)} records: {', '.join(sorted(set(failures)))}")

    def _events_in(self, records: Sequence[Record]) -> Iterator[tuple[Record, Event]]:
        for record in records:
            try:
                event = event_from_record(record, self.mappings)
            except Exception as error:  # Whatever is wrong with this record, the others are published.
                self._skip(record, type(error).__name__)
            else:
                if event is not None:
                    yield record, event

    def _skip(self, record: Record, reason: str) -> None:
        """Leave a record out, which would otherwise block its shard for a day. Its item is still in the table."""
        self.counts("RecordUnpublishable")
        self.counts(Alarm(Cause.UNEXPECTED_ERROR))
        key = {name: value["S"] for name, value in record["dynamodb"]["Keys"].items()}
        self.logger.error(
            "unpublishable, skipped: no retry helps. Correct the release or the item: what waits is published again",
            extra={"table": table_of(record), **key, "error": reason, "cause": Cause.UNEXPECTED_ERROR},
        )
