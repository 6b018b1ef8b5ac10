"""publish_events: from the tables' streams to SNS. This file only puts the parts together.

    stream record ─► mapping.py: which event is it? ─► the topic of the event's service ─► SNS PublishBatch
                       └─► none can be made of it, or SNS blames the message ─► failed_records.py: put aside, alarm

Any other error makes Lambda retry the batch, in halves (BisectBatchOnFunctionError), for as long as the stream keeps
it. What is put aside or given up is still in its table, where republish or reconcile finds it.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from onecharge.contract.events import ORDER_SERVICE, PAYMENT_SERVICE
from onecharge.runtime.failed_records import FailedRecords
from onecharge.runtime.functions import Context, lambda_handler
from onecharge.runtime.parts import Parts, part
from onecharge.runtime.topics import Topic
from publish_events.mapping import TABLES
from publish_events.publish import Publisher


class PublishEventsParts(Parts):
    @part
    def publisher(self) -> Publisher:
        order_events = self.environment["ORDER_EVENTS_TOPIC_ARN"]
        payment_events = self.environment["PAYMENT_EVENTS_TOPIC_ARN"]
        return Publisher(
            mappings={self.environment[variable]: mapping for variable, mapping in TABLES.items()},
            topics={
                ORDER_SERVICE: Topic(self.sns, order_events, self.logger, self.counts),
                PAYMENT_SERVICE: Topic(self.sns, payment_events, self.logger, self.counts),
            },
            failed_records=self.failed_records,
            logger=self.logger,
            counts=self.counts,
        )

    @part
    def failed_records(self) -> FailedRecords:
        bucket = self.environment["FAILED_RECORDS_BUCKET"]
        return FailedRecords(lambda: self.s3, bucket, now=partial(datetime.now, UTC))


@lambda_handler(PublishEventsParts)
def handler(parts: PublishEventsParts, event: dict[str, Any], context: Context) -> None:
    """Publish one batch of stream records; an error makes the stream deliver the batch again."""
    parts.publisher.publish(event["Records"])
