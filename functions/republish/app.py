"""republish: scheduled; publishes again what waits for an outcome. This file only puts the parts together."""

import time
from typing import Any

from onecharge.orders.republication import RepublishCheckpoint
from onecharge.runtime.aws import BATCH_SIZE
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.parallel import Threads
from onecharge.runtime.parts import Context, Parts, lambda_handler, part
from onecharge.runtime.topics import Topic
from republish.republish import Republisher, waiting_orders, waiting_refunds

_PAGE_SECONDS = 30
"""Far more than a page takes, unless AWS is slow. If the invocation times out within one, the next run repeats it."""


class RepublishParts(Parts):
    @part
    def republisher(self) -> Republisher:
        return Republisher(
            sources=[
                waiting_orders(self.dynamodb, self.environment["ORDERS_TABLE"]),
                waiting_refunds(self.dynamodb, self.environment["ORDER_REFUNDS_TABLE"]),
            ],
            topic=Topic(self.sns, self.environment["ORDER_EVENTS_TOPIC_ARN"], self.logger, self.counts),
            checkpoints=CheckpointStore(self.dynamodb, self.environment["ORDERS_STATE_TABLE"], RepublishCheckpoint),
            clock=time.time,
            logger=self.logger,
            count=self.counts,
            parallel=Threads(BATCH_SIZE),  # as many as the clients have connections
        )


@lambda_handler(RepublishParts)
def handler(parts: RepublishParts, event: dict[str, Any], context: Context) -> None:
    """Publish again what waits, from the checkpoint of the last run. The content of the scheduled event is ignored."""
    parts.republisher.run(lambda: context.get_remaining_time_in_millis() / 1000 >= _PAGE_SECONDS)
