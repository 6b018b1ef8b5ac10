"""Publishing CloudEvents to an SNS topic: in batches, each entry with a result of its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import TYPE_CHECKING

from aws_lambda_powertools import Logger

from onecharge.contract.events import (
    EVENT_TYPE_ATTRIBUTE,
    CancelRequestedEvent,
    OrderPlacedEvent,
    PaymentOutcomeEvent,
    RefundOutcomeEvent,
    RefundRequestedEvent,
)

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sns.type_defs import PublishBatchRequestEntryTypeDef

OrderServiceEvent = OrderPlacedEvent | CancelRequestedEvent | RefundRequestedEvent
PublishedEvent = OrderServiceEvent | PaymentOutcomeEvent | RefundOutcomeEvent

_ENTRIES_MAX = 10
"""Entries of one PublishBatch call (Amazon SNS API Reference, PublishBatch)."""


@dataclass(frozen=True)
class PublishFailure:
    """SNS did not accept this event."""

    event: PublishedEvent
    code: str
    is_permanent: bool
    """It is the event that is wrong: SNS would refuse it again (BatchResultErrorEntry, SenderFault)."""


@dataclass(frozen=True)
class Topic:
    """One topic, standard or FIFO, through boto3's client."""

    client: "SNSClient"
    arn: str
    logger: Logger
    count: Callable[[str], None]

    def publish(self, events: Sequence[PublishedEvent]) -> list[PublishFailure]:
        """Publish all of them; returns those that SNS refused. Raises botocore's errors if a whole batch failed."""
        failures: list[PublishFailure] = []
        for batch in batched(events, _ENTRIES_MAX, strict=False):
            entries = [self._entry(str(index), event) for index, event in enumerate(batch)]
            answer = self.client.publish_batch(TopicArn=self.arn, PublishBatchRequestEntries=entries)
            for taken in answer["Successful"]:
                self._log(batch[int(taken["Id"])])
            # PublishBatch answers 200 even if it accepted nothing: each entry has a result of its own.
            failures += [
                PublishFailure(batch[int(failed["Id"])], failed["Code"], failed["SenderFault"])
                for failed in answer["Failed"]
            ]
        return failures

    def _entry(self, entry_id: str, event: PublishedEvent) -> "PublishBatchRequestEntryTypeDef":
        entry: PublishBatchRequestEntryTypeDef = {
            "Id": entry_id,
            "Message": event.model_dump_json(exclude_none=True),
            "MessageAttributes": {EVENT_TYPE_ATTRIBUTE: {"DataType": "String", "StringValue": event.type}},
        }
        if self.arn.endswith(".fifo"):  # As the name of every FIFO topic does, and of no other.
            entry |= {"MessageGroupId": event.subject, "MessageDeduplicationId": event.id}
        return entry

    def _log(self, event: PublishedEvent) -> None:
        self.count("EventPublished")
        self.logger.info(
            "event published",
            extra={
                "event_type": event.type,
                "order_id": event.data.order_id,
                "attempt": event.data.attempt,
                "correlation_id": event.correlationid,
            },
        )
