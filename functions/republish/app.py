"""republish: scheduled; publishes again what waits for an outcome. This file puts the parts together."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import boto3

from onecharge.orders.republication import RepublishCheckpoint
from onecharge.runtime.aws import BATCH_SIZE, client_config, dynamodb_client
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.parallel import Threads
from onecharge.runtime.topics import Topic
from republish.republish import Republisher
from republish.waiting import waiting_orders, waiting_refunds

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_PAGE_SECONDS = 30
"""Far more than a page takes, unless AWS is slow. If the invocation times out within one, the next run repeats it."""


class Application:
    """Everything that lives as long as the execution environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        logger, self.counts = function_logger(), Counts()
        dynamodb, sns = dynamodb_client(), boto3.client("sns", config=client_config())
        self.republisher = Republisher(
            sources=[
                waiting_orders(dynamodb, environment["ORDERS_TABLE"]),
                waiting_refunds(dynamodb, environment["ORDER_REFUNDS_TABLE"]),
            ],
            topic=Topic(sns, environment["ORDER_EVENTS_TOPIC_ARN"], logger, self.counts),
            checkpoints=CheckpointStore(dynamodb, environment["ORDERS_STATE_TABLE"], RepublishCheckpoint),
            clock=time.time,
            logger=logger,
            count=self.counts,
            parallel=Threads(BATCH_SIZE),  # as many as the clients have connections
        )


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> None:
    """Publish again what waits, from the checkpoint of the last run. The content of the scheduled event is ignored."""
    application.republisher.run(lambda: context.get_remaining_time_in_millis() / 1000 >= _PAGE_SECONDS)
