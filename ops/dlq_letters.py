"""The messages in the DLQs: what they are, where each belongs, and how they are read, sent back and recorded.

Reading a message hides it for a while, from other operators and from metrics of visible messages, and deletes nothing.
When a reading ends, its messages are made visible again; if that fails, SQS does it when the visibility timeout ends.

Sending back is send, then delete. A crash between leaves the message in the DLQ, and its copy in the queue: the next
redrive makes a duplicate. Deleting first would lose the message. SQS cannot do this for us: StartMessageMoveTask moves
whole queues, never by reason, and it refuses messages that were *sent* to a DLQ, as a function and SNS do, unless a
destination is named (Amazon SQS API reference).

**No redrive charges an order twice, whatever is lost.** A redriven message is one more delivery, and the charge
protocol (docs/protocol.md) takes any number of deliveries, at any age, in any order. The message has the order's age
(`placed_at`, the same for every attempt and redrive): 22 hours later its PaymentIntent is not created any more, and the
order is held. Its body is sent as it is, never changed. A refund is looked up at Stripe before each request.

On a FIFO queue the message keeps its group. Its deduplication id is new, and derives from the id in the DLQ. With the
previous one, SQS would drop a message that was sent back, became a dead letter again and is sent back once more within
five minutes: deleted here, and lost. Redriven messages follow newer ones of their group: an earlier attempt is
superseded.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import batched
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import TypeAdapter

from onecharge.contract.events import (
    ORDER_ID_PATTERN,
    PAYMENT_EVENT_TYPES,
    CancelRequestedEvent,
    Event,
    EventType,
    OrderPlacedEvent,
    PaymentOutcomeEvent,
    event_adapter,
)
from onecharge.contract.refunds import REFUND_EVENT_TYPES, RefundOutcomeEvent, RefundRequestedEvent
from onecharge.runtime.queues import DeadLetterAttribute
from ops.connection import Stack
from ops.output import redacted, redacted_values

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef, SendMessageRequestTypeDef

# ---------------------------------------------------------------- one message

RECEIVED_TOO_OFTEN = "received too often"
"""The reason of a message that SQS has moved to the DLQ itself: it was received maxReceiveCount times."""
NOT_DELIVERED = "not delivered by SNS"
_OF_SNS = ("RequestID", "ErrorCode", "ErrorMessage")
"""The message attributes that SNS adds to what it could not deliver (Amazon SNS Developer Guide, "Dead-letter
queues")."""
_OF_THE_DLQ = {*DeadLetterAttribute, *_OF_SNS}


@dataclass(frozen=True)
class DeadLetter:
    """One message of a DLQ. Nothing in it is trusted: anyone who may send to the DLQ may have written it."""

    dlq: str
    """The DLQ's logical id."""
    message_id: str
    receipt_handle: str
    body: str
    sent_at: datetime
    """When it was sent to the DLQ; of a message that SQS has moved between standard queues, to its first queue."""
    attributes: Mapping[str, str]
    """Its message attributes that are strings."""
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
            attributes={name: each["StringValue"] for name, each in attributes.items() if "StringValue" in each},
            group=system.get("MessageGroupId"),
        )

    @property
    def reason(self) -> str:
        """Why it is here: the function that cannot parse or validate it says so, or SNS; SQS itself says nothing."""
        if DeadLetterAttribute.REASON in self.attributes:
            return self.attributes[DeadLetterAttribute.REASON]
        if "ErrorCode" in self.attributes:
            return f"{NOT_DELIVERED}: {self.attributes['ErrorCode']}"
        return RECEIVED_TOO_OFTEN

    @property
    def original_message_id(self) -> str | None:
        """Its id in the queue that it was received from, if a function has sent it here."""
        return self.attributes.get(DeadLetterAttribute.ORIGINAL_MESSAGE_ID)

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

    @property
    def described(self) -> dict[str, Any]:
        return {
            "message_id": self.message_id,
            "dlq": self.dlq,
            "reason": self.reason,
            "order_id": self.order_id,
            "attempt": self.attempt,
            "event_type": self.event_type,
            "sent_at": self.sent_at.isoformat(),
        }

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


# ---------------------------------------------------------------- which DLQs, and where a message belongs


@dataclass(frozen=True)
class Destination:
    """A queue whose messages may end in a DLQ, by its logical id, and what its consumer reads."""

    queue: str
    adapter: TypeAdapter[Event]
    event_types: frozenset[str]


DESTINATIONS = (
    Destination(
        "PaymentsQueue",
        event_adapter(OrderPlacedEvent, CancelRequestedEvent),
        frozenset({EventType.ORDER_PLACED, EventType.CANCEL_REQUESTED}),
    ),
    Destination(
        "OrderUpdatesQueue",
        event_adapter(PaymentOutcomeEvent, RefundOutcomeEvent),
        frozenset({*PAYMENT_EVENT_TYPES.values(), *REFUND_EVENT_TYPES.values()}),
    ),
    Destination("RefundsQueue", TypeAdapter(RefundRequestedEvent), frozenset({EventType.REFUND_REQUESTED})),
)
"""Every queue that a message can be sent back to. No event type belongs to two."""

DLQS: Mapping[str, str | None] = {
    "PaymentsDlq": "PaymentsQueue",
    "OrderUpdatesDlq": "OrderUpdatesQueue",
    "RefundsDlq": "RefundsQueue",
    "SubscriptionsDlq": None,
}
"""Every DLQ of template.yaml by its logical id, and its one source. None: the message's type says where it belongs."""


def destination_of(letter: DeadLetter) -> Destination | None:
    """Where the message belongs: the source of its DLQ, else by its type. None: it is not a message of a queue."""
    source = DLQS.get(letter.dlq)
    for each in DESTINATIONS:
        if each.queue == source or (source is None and letter.event_type in each.event_types):
            return each
    return None


# ---------------------------------------------------------------- reading

READ_MAX = 10_000
"""How many messages of one DLQ are read at the most: SQS limits how many may be hidden at the same time."""
_HIDDEN_SECONDS = 300
"""How long a message that is read is hidden if it is not made visible again."""
_BATCH = 10
_WAIT_SECONDS = 1
"""Long polling asks all servers of a queue, short polling only some (Amazon SQS Developer Guide, "Short and long
polling"): without it a message may stay unseen. An emulator is one server."""


@dataclass
class Reading:
    """The messages of one DLQ while they are hidden, and how many of them were not seen."""

    sqs: "SQSClient"
    url: str
    dlq: str
    limit: int = READ_MAX
    wait_seconds: int = _WAIT_SECONDS
    held: dict[str, DeadLetter] = field(default_factory=dict)
    """What was read and is still in the DLQ, by message id; the newest receipt handle counts."""
    known: set[str] = field(default_factory=set)
    """The ids of all that was read."""
    present: int = 0
    """How many there were when the reading began, hidden ones included; SQS counts approximately."""

    def batches(self) -> Iterator[list[DeadLetter]]:
        """All that can be received, at most ten at a time; each message once."""
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])["Attributes"]
        # Visible, hidden, delayed.
        self.present = sum(int(count) for name, count in attributes.items() if name.startswith("ApproximateNumberOf"))
        while len(self.known) < self.limit:
            batch = [DeadLetter.of(self.dlq, message) for message in self._receive()]
            new = [letter for letter in batch if letter.message_id not in self.known]
            if not new:  # Or only what was read before, and whose visibility timeout has ended since.
                return
            self.known.update(letter.message_id for letter in new)
            self.held.update({letter.message_id: letter for letter in batch})
            yield new

    def delete(self, letter: DeadLetter) -> bool:
        """Delete the message permanently; False if it may still be in the DLQ."""
        held = self.held.get(letter.message_id, letter)
        try:
            self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=held.receipt_handle)
        except (BotoCoreError, ClientError):
            return False
        self.held.pop(letter.message_id, None)
        return True

    @property
    def unseen(self) -> int:
        """About how many were there and could not be read."""
        return max(0, self.present - len(self.known))

    def release(self) -> None:
        """Make all that was read visible again; if a request fails, its messages become it by themselves."""
        for letters in batched(self.held.values(), _BATCH, strict=False):
            entries = [
                {"Id": str(index), "ReceiptHandle": letter.receipt_handle, "VisibilityTimeout": 0}
                for index, letter in enumerate(letters)
            ]
            try:
                self.sqs.change_message_visibility_batch(QueueUrl=self.url, Entries=entries)  # type: ignore[arg-type]
            except (BotoCoreError, ClientError):
                return

    def _receive(self) -> list["MessageTypeDef"]:
        answer = self.sqs.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=min(_BATCH, self.limit - len(self.known)),
            VisibilityTimeout=_HIDDEN_SECONDS,
            WaitTimeSeconds=self.wait_seconds,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return answer.get("Messages", [])


@contextmanager
def reading(stack: Stack, dlq: str, *, limit: int = READ_MAX) -> Iterator[Reading]:
    """Read a DLQ for as long as the block lasts; then its messages are visible again."""
    wait_seconds = 0 if stack.is_local else _WAIT_SECONDS
    opened = Reading(stack.sqs, stack.resource(dlq), dlq, limit, wait_seconds)
    try:
        yield opened
    finally:
        opened.release()


# ---------------------------------------------------------------- sending back


def message_to_send(stack: Stack, letter: DeadLetter) -> "SendMessageRequestTypeDef":
    """The request that sends the message to its queue, as it was there. Raises ValueError if it belongs to none."""
    destination = destination_of(letter)
    if destination is None:
        raise ValueError(f"{letter.message_id} belongs to no queue")
    url = stack.resource(destination.queue)
    attributes = {name: value for name, value in letter.attributes.items() if name not in _OF_THE_DLQ}
    message: SendMessageRequestTypeDef = {
        "QueueUrl": url,
        "MessageBody": letter.event_json,
        "MessageAttributes": {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()},
    }
    if url.endswith(".fifo"):
        message["MessageGroupId"] = letter.group or letter.order_id or letter.message_id
        message["MessageDeduplicationId"] = f"redrive-{letter.message_id}"
    return message


# ---------------------------------------------------------------- recording what is discarded


def append_record(path: Path, stack: Stack, letter: DeadLetter, *, because: str, advice: str) -> None:
    """Append a record of the message to the file, as a line of JSON that is on the disk when this returns.

    `send_again` is the request of SQS's SendMessage, which `aws sqs send-message --cli-input-json` takes. Secrets are
    cut out of the record: then the message cannot be sent again. Raises OSError.
    """
    body = redacted(letter.body)
    attributes = {name: redacted(value) for name, value in letter.attributes.items()}
    is_whole = (body, attributes) == (letter.body, letter.attributes)
    record = {
        "discarded_at": datetime.now(UTC).isoformat(),
        "discarded_by": stack.caller,
        "because": because,
        "advice": advice,
        **redacted_values(letter.described),
        "attributes": attributes,
        "body": body,
        "send_again": message_to_send(stack, letter) if is_whole and destination_of(letter) else None,
    }
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # Without a buffer: one write is one line, also of several threads.
    with os.fdopen(descriptor, "ab", buffering=0) as file:
        file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())
        os.fsync(file.fileno())
