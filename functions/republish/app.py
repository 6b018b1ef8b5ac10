"""republish: scheduled; publishes again what waits for an outcome. This file puts the parts together."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Metrics

from onecharge.runtime.aws import BATCH_SIZE, aws_client, client_config
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.parallel import Threads
from onecharge.runtime.topics import Topic
from republish.republish import RepublishCheckpoint, RepublishOrders
from republish.waiting import Source, WaitingOrders
from republish.waiting_refunds import WaitingRefunds

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_PAGE_SECONDS = 30
"""Far more than a page takes, unless AWS is slow. If the invocation times out within one, the next run repeats it."""


class Application:
    """Everything that lives as long as the execution environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        config = client_config()
        self._logger = function_logger()
        self._threads = Threads(BATCH_SIZE)  # as many as the clients have connections
        self.counts = Counts(Metrics())
        dynamodb = aws_client("dynamodb", config=config)
        self._sources: list[Source] = [
            WaitingOrders(dynamodb, environment["ORDERS_TABLE"]),
            WaitingRefunds(dynamodb, environment["ORDER_REFUNDS_TABLE"]),
        ]
        self._checkpoints = CheckpointStore(dynamodb, environment["ORDERS_STATE_TABLE"], RepublishCheckpoint)
        sns = aws_client("sns", config=config)
        self._topic = Topic(sns, environment["ORDER_EVENTS_TOPIC_ARN"], self._logger, self.counts)

    def republish(self, context: "LambdaContext") -> None:
        """One run, which ends before the invocation times out."""
        RepublishOrders(
            sources=self._sources,
            topic=self._topic,
            checkpoints=self._checkpoints,
            clock=time.time,
            parallel=self._threads,
            has_time=lambda: context.get_remaining_time_in_millis() / 1000 >= _PAGE_SECONDS,
            logger=self._logger,
            count=self.counts,
        )()


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> None:
    """Publish again what waits, from the checkpoint of the last run. The content of the scheduled event is ignored."""
    application.republish(context)
