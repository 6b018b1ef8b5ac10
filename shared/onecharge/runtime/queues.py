"""One SQS queue and its dead-letter queue, through boto3's client."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageRequestTypeDef


@dataclass(frozen=True)
class Delivery:
    """One receive of one message. SQS delivers at least once, so a message can have several."""

    message_id: str
    receipt_handle: str
    """Of this receive; what changes the message's visibility timeout or deletes it."""
    receive_count: int
    """How often the message has been received, this time included (ApproximateReceiveCount)."""
    body: str
    group: str | None = None
    """The message group id; on a FIFO queue every message has one."""

    @classmethod
    def of(cls, record: SQSRecord) -> Self:
        """The delivery that a record of Lambda's event holds."""
        return cls(
            message_id=record.message_id,
            receipt_handle=record.receipt_handle,
            receive_count=int(record.attributes.approximate_receive_count),
            body=record.body,
            group=record.attributes.message_group_id,
        )


@dataclass(frozen=True)
class Queue:
    """A queue and its DLQ, both standard or both FIFO. Methods raise botocore's errors."""

    client: "SQSClient"
    url: str
    dlq_url: str

    @property
    def is_fifo(self) -> bool:
        """Whether it is a FIFO queue: the names of those, and of no others, end in `.fifo`."""
        return self.url.endswith(".fifo")

    def change_visibility(self, delivery: Delivery, seconds: int) -> None:
        """Set the message's visibility timeout: invisible for so many seconds from now, at the most 43,200 (12 h)."""
        self.client.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=delivery.receipt_handle, VisibilityTimeout=seconds
        )

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Send the message's body to the DLQ, with the reason and the message id as message attributes.

        On a FIFO queue the message stays in its group, and sending it twice within five minutes adds it once.
        """
        message: SendMessageRequestTypeDef = {
            "QueueUrl": self.dlq_url,
            "MessageBody": delivery.body,
            "MessageAttributes": {
                "reason": {"DataType": "String", "StringValue": reason},
                "original_message_id": {"DataType": "String", "StringValue": delivery.message_id},
            },
        }
        if self.is_fifo and delivery.group:
            message |= {"MessageGroupId": delivery.group, "MessageDeduplicationId": delivery.message_id}
        self.client.send_message(**message)
