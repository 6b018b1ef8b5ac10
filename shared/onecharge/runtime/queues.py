"""One SQS queue and its dead-letter queue, through boto3's client."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageRequestTypeDef


class DeadLetterAttribute(StrEnum):
    """The attributes of a message that a function has sent to a DLQ, which is to be sent back to its source queue."""

    REASON = "reason"
    SOURCE_QUEUE = "source_queue"
    ORIGINAL_MESSAGE_ID = "original_message_id"
    ORIGINAL_SENT_AT = "original_sent_at"
    ORIGINAL_RECEIVE_COUNT = "original_receive_count"


@dataclass(frozen=True)
class Delivery:
    """One receive of one message. SQS delivers at least once, so a message can have several."""

    message_id: str
    receipt_handle: str
    """The handle of this receive: it changes the message's visibility timeout, or deletes the message."""
    receive_count: int
    """How often the message has been received, this time included (ApproximateReceiveCount)."""
    body: str
    sent_at: str = ""
    """When the message was sent to its queue, ISO 8601 in UTC."""
    group: str | None = None
    """The message group id; on a FIFO queue every message has one."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """The delivery that a record of Lambda's event holds (AWS Lambda Developer Guide, "Using Lambda with SQS")."""
        system = record["attributes"]
        return cls(
            message_id=record["messageId"],
            receipt_handle=record["receiptHandle"],
            receive_count=int(system["ApproximateReceiveCount"]),
            body=record["body"],
            sent_at=datetime.fromtimestamp(int(system["SentTimestamp"]) / 1000, UTC).isoformat(),
            group=system.get("MessageGroupId"),
        )


@dataclass(frozen=True)
class Queue:
    """A queue and its DLQ. Methods raise botocore's errors.

    Lambda receives and deletes messages itself, so the client is asked for only when a message waits or is poison.
    """

    client: Callable[[], "SQSClient"]
    url: str
    dlq_url: str

    @property
    def is_fifo(self) -> bool:
        """Whether it is a FIFO queue: only their names end in `.fifo`."""
        return self.url.endswith(".fifo")

    def change_visibility(self, delivery: Delivery, seconds: int) -> None:
        """Set the message's visibility timeout: invisible for `seconds` from now, at most 43,200 (12 h)."""
        self.client().change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=delivery.receipt_handle, VisibilityTimeout=seconds
        )

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Send the message's body to the DLQ, with the reason and what is needed to send it back to its queue.

        What SQS moves there itself keeps its id, its time and its source queue; what is sent does not.
        """
        attributes = {
            DeadLetterAttribute.REASON: reason,
            DeadLetterAttribute.SOURCE_QUEUE: self.url.rpartition("/")[2],
            DeadLetterAttribute.ORIGINAL_MESSAGE_ID: delivery.message_id,
            DeadLetterAttribute.ORIGINAL_SENT_AT: delivery.sent_at,
            DeadLetterAttribute.ORIGINAL_RECEIVE_COUNT: str(delivery.receive_count),
        }
        message: SendMessageRequestTypeDef = {
            "QueueUrl": self.dlq_url,
            "MessageBody": delivery.body,
            "MessageAttributes": {
                str(name): {"DataType": "String", "StringValue": value} for name, value in attributes.items()
            },
        }
        # The message stays in its group, and sending it twice within five minutes adds it once.
        if self.is_fifo and delivery.group:
            message |= {"MessageGroupId": delivery.group, "MessageDeduplicationId": delivery.message_id}
        self.client().send_message(**message)
