"""publish_events: from the tables' streams to SNS. This file only puts the parts together.

    stream record ─► mapping.py: which event is it? ─► the topic of the event's service ─► SNS PublishBatch
                       └─► none can be made of it, or SNS blames the message ─► failed_records.py: put aside, alarm

Any other error makes Lambda retry the batch, in halves (BisectBatchOnFunctionError), for as long as the stream keeps
it. What is put aside or given up is still in its table, where republish or reconcile finds it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import boto3

from onecharge.contract.events import ORDER_SERVICE, PAYMENT_SERVICE
from onecharge.runtime.aws import client_config
from onecharge.runtime.failed_records import FailedRecords
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.topics import Topic
from publish_events.mapping import TABLES
from publish_events.publish import Publisher

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


class Application:
    """Everything that lives as long as the execution environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        logger = function_logger()
        sns = boto3.client("sns", config=client_config())
        self.counts = Counts()
        self.publisher = Publisher(
            mappings={environment[variable]: mapping for variable, mapping in TABLES.items()},
            topics={
                ORDER_SERVICE: Topic(sns, environment["ORDER_EVENTS_TOPIC_ARN"], logger, self.counts),
                PAYMENT_SERVICE: Topic(sns, environment["PAYMENT_EVENTS_TOPIC_ARN"], logger, self.counts),
            },
            failed_records=FailedRecords(
                lambda: boto3.client("s3", config=client_config()),
                environment["FAILED_RECORDS_BUCKET"],
                now=lambda: datetime.now(UTC),
            ),
            logger=logger,
            counts=self.counts,
        )


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> None:
    """Publish one batch of stream records; an error makes the stream deliver the batch again."""
    application.publisher.publish(event["Records"])
