"""One message of a DLQ, as SQS shows it: sent there by a function or by SNS, or moved there by SQS."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.runtime.queues import DeadLetterAttribute

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import MessageTypeDef

RECEIVED_TOO_OFTEN = "received too often"
"""The reason of a message that SQS has moved to the DLQ itself: it was received maxReceiveCount times."""
NOT_DELIVERED = "not delivered by SNS"
"""The reason of a message that SNS has sent, without the code that says more."""

_OF_SNS = ("RequestID", "ErrorCode", "ErrorMessage")
"""The message attributes that SNS adds to what it could not deliver (Amazon SNS Developer Guide, "Dead-letter
queues")."""
_OF_THE_DLQ = {*DeadLetterAttribute, *_OF_SNS}


@dataclass(frozen=True)
class DeadLetter:
    """One message. Nothing in it is trusted: anyone who may send to the DLQ may have written it."""

    dlq: str
    """The DLQ's logical id."""
    message_id: str
    receipt_handle: str
    body: str
    sent_at: datetime
    """When it was sent to the DLQ; of a message that SQS has moved between standard queues, to its first queue."""
    receive_count: int
    """How often it was received in the DLQ; of a message that SQS has moved, in both queues."""
    attributes: Mapping[str, str]
    """Its message attributes that are strings."""
    source_queue_arn: str | None = None
    """Of a message that SQS has moved: where from."""
    group: str | None = None

    @classmethod
    def of(cls, dlq: str, message: "MessageTypeDef") -> Self:
        """The message that ReceiveMessage returned with all its attributes."""
        system = message.get("Attributes", {})
        attributes = message.get("MessageAttributes", {})
        return cls(
            dlq=dlq,
            message_id=message["MessageId"],
            receipt_handle=message["ReceiptHandle"],
            body=message["Body"],
            sent_at=datetime.fromtimestamp(int(system.get("SentTimestamp", "0")) / 1000, UTC),
            receive_count=int(system.get("ApproximateReceiveCount", "0")),
            attributes={name: each["StringValue"] for name, each in attributes.items() if "StringValue" in each},
            source_queue_arn=system.get("DeadLetterQueueSourceArn"),
            group=system.get("MessageGroupId"),
        )

    @property
    def reason(self) -> str:
        """Why it is here."""
        given = self.attributes.get(DeadLetterAttribute.REASON)
        if given is not None:
            return given
        if "ErrorCode" in self.attributes:
            return f"{NOT_DELIVERED}: {self.attributes['ErrorCode']}"
        return RECEIVED_TOO_OFTEN

    @property
    def source_queue(self) -> str | None:
        """The name of the queue that it was received from, if it says so."""
        arn = self.source_queue_arn or ""
        return self.attributes.get(DeadLetterAttribute.SOURCE_QUEUE) or arn.rpartition(":")[2] or None

    @property
    def original_message_id(self) -> str | None:
        """Its id in the queue that it was received from, if a function has sent it here."""
        return self.attributes.get(DeadLetterAttribute.ORIGINAL_MESSAGE_ID)

    @property
    def attributes_to_send(self) -> Mapping[str, str]:
        """Its attributes as they were in its queue."""
        return {name: value for name, value in self.attributes.items() if name not in _OF_THE_DLQ}

    @cached_property
    def event_json(self) -> str:
        """The event: the body, or what SNS has wrapped in its envelope."""
        parsed = _object_in(self.body)
        is_envelope = parsed.get("Type") == "Notification" and isinstance(parsed.get("Message"), str)
        return str(parsed["Message"]) if is_envelope else self.body

    # What a person is shown of it, also of a message that no version of the code can read.

    @property
    def event_type(self) -> str | None:
        return _text_in(self._event, "type")

    @property
    def order_id(self) -> str | None:
        """The order that it is about, as far as it can be read."""
        data = self._event.get("data")
        found = (_text_in(data if isinstance(data, dict) else {}, "order_id"), _text_in(self._event, "subject"))
        return next((each for each in found if each and re.match(ORDER_ID_PATTERN, each)), None)

    @property
    def attempt(self) -> int | None:
        data = self._event.get("data")
        attempt = data.get("attempt") if isinstance(data, dict) else None
        return attempt if type(attempt) is int else None

    @cached_property
    def _event(self) -> dict[str, Any]:
        return _object_in(self.event_json)


def _object_in(text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _text_in(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) and len(value) <= 255 else None
