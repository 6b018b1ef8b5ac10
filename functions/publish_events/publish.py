"""Publishes stream records to SNS, at least once, and puts aside those that never can be published."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.contract.events import ORDER_SERVICE, Event
from onecharge.runtime.alarms import Cause
from onecharge.runtime.aws import error_code
from onecharge.runtime.dynamodb import ALL_SHARDS
from onecharge.runtime.failed_records import FailedRecords, key_of
from onecharge.runtime.metrics import Alarm, Counts
from onecharge.runtime.topics import Topic
from publish_events.mapping import EventFromItem, Record, event_from_record


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
    failed_records: FailedRecords
    logger: Logger
    counts: Counts

    def publish(self, records: Sequence[Record]) -> None:
        """Publish every record that can be published, whether or not others fail; put aside those that never can be.

        Raises:
            NotPublished: SNS did not accept some of the events, or S3 some of the records.
        """
        failures: list[str] = []
        events = list(self._events_in(records, failures))
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
                    self._put_aside(record_of[id(failed.event)], failed.code, failures)
                else:
                    failures.append(failed.code)
        if failures:
            raise NotPublished(f"{len(failures)} of {len(records)} records: {', '.join(sorted(set(failures)))}")

    def _events_in(self, records: Sequence[Record], failures: list[str]) -> Iterator[tuple[Record, Event]]:
        for record in records:
            try:
                event = event_from_record(record, self.mappings)
            except Exception as error:  # Whatever is wrong with this record, the others are published.
                self._put_aside(record, type(error).__name__, failures)
            else:
                if event is not None:
                    self._report_if_unindexed(record, event)
                    yield record, event

    def _report_if_unindexed(self, record: Record, event: Event) -> None:
        """Raise the alarm if republish could not find the item, should this record be lost.

        Whatever the order service publishes waits, so the index `waiting` has to have it. The index lacks an item whose
        attribute waiting_shard was removed by hand.
        """
        if event.source != ORDER_SERVICE:
            return
        shard = record["dynamodb"]["NewImage"].get("waiting_shard")
        if shard and shard.get("S") in ALL_SHARDS:
            return
        self.counts("WaitingUnindexed")
        self.counts(Alarm(Cause.NOT_INDEXED))
        self.logger.error(
            "waiting item missing from the index `waiting`: set its attribute waiting_shard",
            extra={"order_id": event.subject, "event_id": event.id, "cause": Cause.NOT_INDEXED},
        )

    def _put_aside(self, record: Record, reason: str, failures: list[str]) -> None:
        """Put a record aside, which would otherwise block its shard for a day. If S3 refuses it, Lambda retries it."""
        try:
            is_new = self.failed_records.put(record, reason)
        except (BotoCoreError, ClientError) as error:
            failures.append(error_code(error))
            return
        if is_new:
            self.counts("RecordUnpublishable")
            self.counts(Alarm(Cause.UNPUBLISHABLE))
            self.logger.error(
                "unpublishable: no retry helps. Correct the item, then `python -m ops failed-records republish`",
                extra={
                    "order_id": record["dynamodb"]["Keys"]["order_id"]["S"],
                    "error": reason,
                    "key": key_of(record),
                    "cause": Cause.UNPUBLISHABLE,
                },
            )
