"""publish_events: from the tables' streams to SNS. This file only puts the parts together.

    stream record ─► mapping.py: which event is it? ─► the topic of the event's service ─► SNS PublishBatch
                       └─► none can be made of it, or SNS blames the message ─► skipped, with an alarm

Any other error makes Lambda retry the batch, in halves (BisectBatchOnFunctionError), for as long as the stream keeps
it. A record that is skipped or expires is still an item of its table: republish publishes what waits, and
`python -m ops publish` any order.
"""

from typing import Any

from onecharge.contract.events import ORDER_SERVICE, PAYMENT_SERVICE
from onecharge.runtime.aws import records_of
from onecharge.runtime.parts import Context, Parts, lambda_handler, part
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
            logger=self.logger,
            counts=self.counts,
        )


@lambda_handler(PublishEventsParts)
def handler(parts: PublishEventsParts, event: dict[str, Any], context: Context) -> None:
    """Publish one batch of stream records; an error makes the stream deliver the batch again."""
    parts.publisher.publish(records_of(event, "aws:dynamodb", parts.logger))
