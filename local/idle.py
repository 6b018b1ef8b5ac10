"""Waits until every message has been processed."""

import time
from collections.abc import Callable

from local.stack import Stack

_ATTRIBUTES = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_IDLE_POLLS = 8


class NotIdle(Exception):
    """The queues still hold messages after the timeout."""


def messages_in(stack: Stack, queue_url: str) -> int:
    """All messages of a queue: visible, in flight, or delayed."""
    response = stack.aws.client("sqs").get_queue_attributes(QueueUrl=queue_url, AttributeNames=list(_ATTRIBUTES))
    return sum(int(response["Attributes"][name]) for name in _ATTRIBUTES)


def wait_until_idle(
    stack: Stack, *, timeout_seconds: float, on_poll: Callable[[int], None] = lambda waiting: None
) -> None:
    """Return when all queues have been empty for a while; raises NotIdle if that takes too long.

    Several polls in a row, since an event may be between a table's stream and its queue.
    """
    deadline = time.monotonic() + timeout_seconds
    idle_polls = 0
    queues = (
        stack.payments_queue_url,
        stack.order_updates_queue_url,
        stack.refunds_queue_url,
    )
    while idle_polls < _IDLE_POLLS:
        waiting = sum(messages_in(stack, url) for url in queues)
        on_poll(waiting)
        idle_polls = idle_polls + 1 if waiting == 0 else 0
        if time.monotonic() > deadline:
            raise NotIdle(f"{waiting} messages are still in the queues after {timeout_seconds:.0f} s")
        time.sleep(0.5)
