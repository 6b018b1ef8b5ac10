"""SQS and the outbox's DynamoDB stream, as far as one order needs them. Source: AWS documentation."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.simulation.world import VISIBILITY_SECONDS
from lab.survival.design import DAY_SECONDS, Design, order_in
from tests.shop.builders import BOUNDS
from tests.shop.dynamodb import Item

TIMEOUT_SECONDS = BOUNDS.function_timeout_seconds
_STREAM_BACKOFF_MAX_SECONDS, _ENGINE_BACKOFF_MAX_SECONDS = 300, 4 * 3600
_FIFO_DEDUPLICATION_SECONDS = 300


@dataclass
class Message:
    """A message of the queue; or a record of the outbox's stream, which has an image instead of a body."""

    id: str
    body: str
    sent_at: int
    visible_at: int
    image: Item | None = None
    receives: int = 0
    receipt_handles: set[str] = field(default_factory=set)
    """The valid ones: those of the last visibility timeout."""
    is_second_copy: bool = False
    """Within the visibility timeout: the next receive leaves the earlier receipt handles valid."""

    def as_record(self, receipt_handle: str) -> dict[str, Any]:
        """The record of the event that Lambda receives."""
        if self.image is not None:
            return {"eventName": "INSERT", "dynamodb": {"NewImage": self.image}}
        return {
            "messageId": self.id,
            "receiptHandle": receipt_handle,
            "body": self.body,
            "attributes": {
                "ApproximateReceiveCount": str(self.receives),
                "SentTimestamp": str(self.sent_at * 1000),
            },
            "messageAttributes": {},
            "eventSource": "aws:sqs",
        }


class Messaging:
    """The topic, the queue with its DLQ, and the stream."""

    def __init__(self, design: Design, now: Callable[[], int], note: Callable[[str], None]) -> None:
        self._design, self._now, self._note = design, now, note
        self._published_at: dict[str, int] = {}
        self._count = 0
        self.messages: list[Message] = []
        self.dlq: list[str] = []

    def publish(self, body: str) -> None:
        if self._design.fifo:
            now, order_id = self._now(), _order_id_in(body)
            if now - self._published_at.get(order_id, now - DAY_SECONDS) < _FIFO_DEDUPLICATION_SECONDS:
                self._note("published again, dropped by the FIFO topic")
                return
            self._published_at[order_id] = now
        self._send(body)

    def add_to_stream(self, image: Item) -> None:
        self.messages.append(Message(f"r{self._next()}", "", self._now(), self._now(), image=image))

    def ready(self) -> list[Message]:
        """The messages that can be received now; a FIFO queue has one of an order's group in flight."""
        ready = [message for message in self.messages if message.visible_at <= self._now()]
        if not self._design.fifo:
            return ready
        groups = {_order_id_in(message.body) for message in self.messages if message.visible_at > self._now()}
        return [message for message in ready if _order_id_in(message.body) not in groups]

    def receive(self, message: Message) -> bool:
        """Returns whether the message is delivered, and not moved to the DLQ or dropped from the stream."""
        message.receives += 1
        if message.image is not None:
            return self._receive_from_stream(message)
        if message.receives > self._design.max_receive_count:
            self.move_to_dlq(message)
            return False
        message.visible_at = self._now() + VISIBILITY_SECONDS
        return True

    def _receive_from_stream(self, message: Message) -> bool:
        forever = self._design.relay_retries_forever
        if self._now() - message.sent_at >= DAY_SECONDS and not forever:
            self._note(f"{message.id} expires in the stream")
            self.messages.remove(message)
            return False
        # Lambda retries a record whose invocation failed or timed out, with backoff.
        backoff_max_seconds = _ENGINE_BACKOFF_MAX_SECONDS if forever else _STREAM_BACKOFF_MAX_SECONDS
        backoff_seconds = min(backoff_max_seconds, 2**message.receives)
        message.visible_at = self._now() + TIMEOUT_SECONDS + backoff_seconds
        return True

    def new_receipt_handle(self, message: Message) -> str:
        if not message.is_second_copy:
            message.receipt_handles.clear()
        receipt_handle = f"receipt {self._next()}"
        message.receipt_handles.add(receipt_handle)
        return receipt_handle

    def change_visibility(self, receipt_handle: str, seconds: int) -> None:
        for message in self.messages:
            if receipt_handle in message.receipt_handles:
                message.visible_at = self._now() + seconds

    def move_to_dlq(self, message: Message) -> None:
        self._note(f"{message.id} goes to the DLQ")
        self.messages.remove(message)
        self.dlq.append(message.body)

    def redrive(self) -> None:
        bodies, self.dlq = self.dlq, []
        for body in bodies:
            self._note("redriven from the DLQ")
            # With a new message id (Amazon SQS documentation, "Configure a dead-letter queue redrive").
            self._send(body)

    def _send(self, body: str) -> None:
        message = Message(f"m{self._next()}", body, self._now(), self._now())
        self._note(f"{message.id} sent")
        self.messages.append(message)

    def _next(self) -> int:
        self._count += 1
        return self._count


def _order_id_in(body: str) -> str:
    """The deduplication id and the message group of a FIFO design."""
    return str(order_in({"body": body})["order_id"])
