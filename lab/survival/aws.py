"""What the designs meet of AWS, from its documentation: SQS, boto3's retries, the clock that Powertools reads."""

import datetime
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from botocore.exceptions import ReadTimeoutError

from lab.simulation.world import VISIBILITY_SECONDS
from tests.shop.dynamodb import MemoryDynamoDB


@dataclass
class Message:
    """A message of the queue."""

    id: str
    body: str
    sent_at: int
    visible_at: int
    receives: int = 0
    receipt_handles: set[str] = field(default_factory=set)
    """The valid ones: those of the last visibility timeout."""

    def as_record(self, receipt_handle: str) -> dict[str, Any]:
        """The record of the event that Lambda receives."""
        attributes = {"ApproximateReceiveCount": str(self.receives), "SentTimestamp": str(self.sent_at * 1000)}
        return {
            "messageId": self.id,
            "receiptHandle": receipt_handle,
            "body": self.body,
            "attributes": attributes,
            "messageAttributes": {},
            "eventSource": "aws:sqs",
        }


class Queue:
    """The topic, the queue and its DLQ."""

    def __init__(self, max_receive_count: int, now: Callable[[], int], note: Callable[[str], None]) -> None:
        self._max_receive_count, self._now, self._note = max_receive_count, now, note
        self._count = 0
        self.messages: list[Message] = []
        self.dlq: list[str] = []

    def send(self, body: str) -> None:
        message = Message(f"m{self._next()}", body, self._now(), self._now())
        self._note(f"{message.id} is sent")
        self.messages.append(message)

    def ready(self) -> list[Message]:
        return [message for message in self.messages if message.visible_at <= self._now()]

    def receive(self, message: Message) -> str | None:
        """The receipt handle, which makes those before it invalid; None if the message goes to the DLQ instead."""
        message.receipt_handles.clear()
        if message.receives >= self._max_receive_count:
            self.move_to_dlq(message)
            return None
        message.visible_at = self._now() + VISIBILITY_SECONDS
        return self.receive_copy(message)

    def receive_copy(self, message: Message) -> str:
        """A receive within the visibility timeout of another one; both receipt handles are valid."""
        message.receives += 1
        message.receipt_handles.add(receipt_handle := f"receipt {self._next()}")
        self._note(f"{message.id} is received, {message.receives}.")
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
        """With new message ids (Amazon SQS documentation, "Configure a dead-letter queue redrive")."""
        bodies, self.dlq = self.dlq, []
        for body in bodies:
            self._note("the DLQ is redriven")
            self.send(body)

    def _next(self) -> int:
        self._count += 1
        return self._count


class RetryingClient:
    """boto3 retries a request whose response was lost, so a conditional write can fail because of itself."""

    def __init__(self, client: MemoryDynamoDB, retries_left: Callable[[], bool]) -> None:
        """`retries_left` decides whether boto3 retries once more."""
        self._client, self._retries_left = client, retries_left

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._client, name)
        if name == "exceptions":
            return operation

        def send(**parameters: Any) -> Any:
            try:
                return operation(**parameters)
            except ReadTimeoutError:
                if not self._retries_left():
                    raise
                return operation(**parameters)

        return send


class VirtualClock:
    """For Powertools' idempotency, which calls `datetime.now()`. Each schedule replaces `now`, in epoch seconds."""

    now: Callable[[], int] = staticmethod(lambda: 0)


@contextmanager
def virtual_clock() -> Iterator[VirtualClock]:
    """Replace the datetime module in Powertools' idempotency, and nothing else of the library."""
    clock = VirtualClock()

    class Datetime(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "Datetime":
            return cls.fromtimestamp(clock.now(), tz)

    class DatetimeModule:
        def __getattr__(self, name: str) -> Any:
            return Datetime if name == "datetime" else getattr(datetime, name)

    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            is_of_powertools = name.startswith("aws_lambda_powertools.utilities.idempotency")
            if is_of_powertools and getattr(module, "dt", None) is datetime:
                stack.enter_context(patch.object(module, "dt", DatetimeModule()))
        yield clock
