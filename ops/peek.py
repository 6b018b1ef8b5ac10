"""Looks into DLQs without harm.

Receiving is the only way to see a message. On a source queue it would raise the receive count, which ends at
maxReceiveCount, and hide the message from its function: source queues are only counted. A DLQ has no redrive policy,
so its receive count leads nowhere. Each message is hidden for PEEK_SECONDS at most and shown again at once after the
look, so that a redrive that runs beside it misses it for a moment only.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from ops.connection import Stack

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

DLQS = (
    "PaymentsDlq",
    "OrderUpdatesDlq",
    "SubscriptionsDlq",
    "RefundsDlq",  # optional: refunds
)
"""The DLQs that hold messages of orders, by their logical ids."""

PEEK_SECONDS = 20
"""How long a message is hidden if this process ends before it shows it again."""
MESSAGES_MAX = 1_000
"""Of one queue; with more in it, the look is incomplete, and says so."""
WAIT_SECONDS = 1
"""Long polling asks every server, so that one empty receive proves that the queue is empty (Amazon SQS, "Short and long
polling"). An emulator is one server."""


@dataclass(frozen=True)
class Peeked:
    """A message of a DLQ, as it was seen."""

    queue: str
    """The queue's logical id."""
    message_id: str
    sent_at: int
    """Epoch seconds."""
    body: str
    reason: str | None

    @property
    def event(self) -> dict[str, Any]:
        """The CloudEvent, or as much of it as is one; empty if the body is no JSON object."""
        try:
            parsed = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return parsed if isinstance(parsed, dict) else {}

    def is_about(self, order_id: str) -> bool:
        """Whether the message names the order, wherever: a poison message may be no event."""
        return order_id in self.body


def peek(stack: Stack) -> tuple[list[Peeked], bool]:
    """The messages of every DLQ of orders, and whether those are all."""
    wait_seconds = 0 if stack.is_local else WAIT_SECONDS
    queues = [(stack.sqs, each, stack.resource(each), wait_seconds) for each in DLQS if stack.has_resource(each)]
    with ThreadPoolExecutor(len(DLQS)) as threads:  # Each waits a second for what may still come.
        peeked = list(threads.map(lambda queue: _peek_queue(*queue), queues))
    return [message for messages, _ in peeked for message in messages], all(is_all for _, is_all in peeked)


def _peek_queue(sqs: "SQSClient", logical_id: str, url: str, wait_seconds: int) -> tuple[list[Peeked], bool]:
    found: dict[str, Peeked] = {}
    handles: list[str] = []
    try:
        while len(found) < MESSAGES_MAX:
            answer = sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=10,
                VisibilityTimeout=PEEK_SECONDS,
                WaitTimeSeconds=wait_seconds,
                MessageAttributeNames=["reason"],
                MessageSystemAttributeNames=["SentTimestamp"],
            )
            messages = answer.get("Messages", [])
            handles += [message["ReceiptHandle"] for message in messages]
            new = {message["MessageId"]: _peeked(logical_id, message) for message in messages}
            if not new.keys() - found.keys():
                break
            found |= new
    finally:
        _show_again(sqs, url, handles)
    is_all = len(found) < MESSAGES_MAX
    # optional: fifo
    # What is hidden blocks the rest of its message group: only ten of each group can be seen.
    is_all = is_all and (not url.endswith(".fifo") or len(found) >= _count(sqs, url))
    # end optional
    return list(found.values()), is_all


def _show_again(sqs: "SQSClient", url: str, handles: list[str]) -> None:
    for handle in handles:
        try:
            sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
        except ClientError:
            continue  # Visible again already, or deleted by a redrive beside this one.


def _peeked(logical_id: str, message: Any) -> Peeked:
    reason = message.get("MessageAttributes", {}).get("reason", {}).get("StringValue")
    sent_at = int(message.get("Attributes", {}).get("SentTimestamp", "0")) // 1000
    return Peeked(logical_id, message["MessageId"], sent_at, message["Body"], reason)


def waiting_in(stack: Stack, logical_id: str) -> int:
    """About how many messages a queue holds, without receiving any: visible, delayed, and in flight."""
    return _count(stack.sqs, stack.resource(logical_id))


def _count(sqs: "SQSClient", url: str) -> int:
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return sum(int(value) for name, value in attributes.items() if name.startswith("ApproximateNumberOfMessages"))


def of_order(messages: list[Peeked], order_id: str) -> Iterator[Peeked]:
    """Those that name the order."""
    return (message for message in messages if message.is_about(order_id))
