"""Publishes CloudEvents to an SNS topic in batches. Each entry of a batch succeeds or fails by itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import TYPE_CHECKING

from aws_lambda_powertools import Logger

from onecharge.contract.events import EVENT_TYPE_ATTRIBUTE, Event

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sns.type_defs import PublishBatchRequestEntryTypeDef

ENTRIES_MAX = 10
"""Entries of one PublishBatch request, at most (Amazon SNS API Reference, PublishBatch)."""
_BLAMES_THE_MESSAGE = frozenset({"InvalidParameter", "ParameterValueInvalid", "ValidationException"})
"""The only codes that no retry helps. SenderFault says less: a lost permission is the sender's fault, too."""


@dataclass(frozen=True)
class PublishFailure:
    """SNS did not accept this event."""

    event: Event
    code: str
    is_permanent: bool
    """No retry helps: SNS blames the message."""


@dataclass(frozen=True)
class Topic:
    """One topic, through boto3's client."""

    client: "SNSClient"
    arn: str
    logger: Logger
    count: Callable[[str], None]

    def publish(self, events: Sequence[Event]) -> list[PublishFailure]:
        """Publish all of them; returns what SNS did not accept. Raises botocore's errors if a whole batch failed."""
        batches = batched(events, ENTRIES_MAX, strict=False)
        return [failure for batch in batches for failure in self._publish_batch(batch)]

    def _publish_batch(self, batch: Sequence[Event]) -> list[PublishFailure]:
        entries = [self._entry(str(index), event) for index, event in enumerate(batch)]
        # The response is a success even if every entry failed.
        response = self.client.publish_batch(TopicArn=self.arn, PublishBatchRequestEntries=entries)
        for entry in response["Successful"]:
            event = batch[int(entry["Id"])]
            self.count("EventPublished")
            self.logger.info("event published", extra={"event_type": event.type, **event.log_fields})
        return [
            PublishFailure(batch[int(entry["Id"])], entry["Code"], entry["Code"] in _BLAMES_THE_MESSAGE)
            for entry in response["Failed"]
        ]

    def _entry(self, entry_id: str, event: Event) -> "PublishBatchRequestEntryTypeDef":
        entry: PublishBatchRequestEntryTypeDef = {
            "Id": entry_id,
            "Message": event.model_dump_json(exclude_none=True),
            "MessageAttributes": {EVENT_TYPE_ATTRIBUTE: {"DataType": "String", "StringValue": event.type}},
        }
        if self.arn.endswith(".fifo"):  # Only the name of a FIFO topic ends with it.
            entry |= {"MessageGroupId": event.message_group, "MessageDeduplicationId": event.id}
        return entry
