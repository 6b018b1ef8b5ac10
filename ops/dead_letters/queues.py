"""Which DLQs a stack has, where each message of them belongs, and how they are read without harm.

Reading a message hides it for a while, and deletes nothing. What was read is made visible again when the reading ends;
if that fails, or the program is killed, SQS does it when the visibility timeout ends. While it is hidden, nobody else
sees it: neither another operator, nor a metric of visible messages.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import TypeAdapter

from charge_order.app import ORDER_EVENT
from onecharge.contract.events import Event, EventType, PaymentEventType
from onecharge.contract.refunds import RefundEventType, RefundOutcomeType, RefundRequestedEvent
from ops.connection import Stack
from ops.dead_letters.letter import DeadLetter
from update_order.app import PAYMENT_EVENT

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef

HIDDEN_SECONDS = 300
"""How long a message that is read is hidden if nobody makes it visible again."""
READ_MAX = 10_000
"""How many messages of one DLQ are read at the most: SQS limits how many may be hidden at once."""
_BATCH = 10
_WAIT_SECONDS = 1
"""Long polling asks all servers of a queue, short polling only some (Amazon SQS Developer Guide, "Short and long
polling"): without it a message may stay unseen. An emulator is one server."""


@dataclass(frozen=True)
class Destination:
    """A queue whose messages may end in a DLQ, by its logical id, and what its consumer reads."""

    queue: str
    adapter: TypeAdapter[Event]
    event_types: frozenset[str]


DESTINATIONS = (
    Destination(
        "PaymentsQueue",
        ORDER_EVENT,
        frozenset({EventType.ORDER_PLACED, EventType.CANCEL_REQUESTED}),
    ),
    Destination(
        "OrderUpdatesQueue",
        PAYMENT_EVENT,
        frozenset(
            {
                *get_args(PaymentEventType),
                *get_args(RefundOutcomeType),
            }
        ),
    ),
    Destination(
        "RefundsQueue",
        TypeAdapter(RefundRequestedEvent),
        frozenset({RefundEventType.REQUESTED}),
    ),
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
    """Where the message belongs: the source of its DLQ, else by its type. None: it is no message of a queue."""
    source = DLQS.get(letter.dlq)
    for each in DESTINATIONS:
        if each.queue == source or (source is None and letter.event_type in each.event_types):
            return each
    return None


def dlqs_of(stack: Stack) -> list[str]:
    """The DLQs that the stack has."""
    return [name for name in DLQS if stack.has_resource(name)]


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
    seen: int = 0
    present: int = 0
    """How many there were when the reading began, hidden ones included; SQS counts approximately."""

    def batches(self) -> Iterator[list[DeadLetter]]:
        """All that can be received, at most ten at a time; each message once."""
        self.present = self._count()
        known: set[str] = set()
        while self.seen < self.limit:
            batch = [DeadLetter.of(self.dlq, message) for message in self._receive()]
            new = [letter for letter in batch if letter.message_id not in known]
            if not new:  # Or only what was read before, and whose visibility timeout has ended since.
                return
            known.update(letter.message_id for letter in new)
            self.held.update({letter.message_id: letter for letter in batch})
            self.seen += len(new)
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
        return max(0, self.present - self.seen)

    def release(self) -> None:
        """Make all that was read visible again; what cannot be made so becomes it by itself."""
        letters = list(self.held.values())
        for start in range(0, len(letters), _BATCH):
            entries = [
                {"Id": str(index), "ReceiptHandle": letter.receipt_handle, "VisibilityTimeout": 0}
                for index, letter in enumerate(letters[start : start + _BATCH])
            ]
            try:
                self.sqs.change_message_visibility_batch(QueueUrl=self.url, Entries=entries)  # type: ignore[arg-type]
            except (BotoCoreError, ClientError):
                return

    def _receive(self) -> list["MessageTypeDef"]:
        answer = self.sqs.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=min(_BATCH, self.limit - self.seen),
            VisibilityTimeout=HIDDEN_SECONDS,
            WaitTimeSeconds=self.wait_seconds,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return answer.get("Messages", [])

    def _count(self) -> int:
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])["Attributes"]
        # Visible, hidden, delayed.
        return sum(int(count) for name, count in attributes.items() if name.startswith("ApproximateNumberOf"))


@contextmanager
def reading(stack: Stack, dlq: str, *, limit: int = READ_MAX) -> Iterator[Reading]:
    """Read a DLQ for as long as the block lasts; then whatever is still in it is visible again."""
    wait_seconds = 0 if stack.is_local else _WAIT_SECONDS
    opened = Reading(stack.sqs, stack.resource(dlq), dlq, limit, wait_seconds)
    try:
        yield opened
    finally:
        opened.release()
