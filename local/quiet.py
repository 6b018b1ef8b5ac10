"""When has everything been delivered that is to be delivered?"""

import time
from collections.abc import Callable

from local.stack import Stack

_ATTRIBUTES = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_QUIET_POLLS = 8


class StillBusy(Exception):
    """The queues did not come to rest in time."""


def messages_in(stack: Stack, queue_url: str) -> int:
    """All messages of a queue: waiting, being handled, or waiting to be tried again."""
    answer = stack.aws.client("sqs").get_queue_attributes(QueueUrl=queue_url, AttributeNames=list(_ATTRIBUTES))
    return sum(int(answer["Attributes"][name]) for name in _ATTRIBUTES)


def wait_until_quiet(
    stack: Stack, *, timeout_seconds: float, on_poll: Callable[[int], None] = lambda waiting: None
) -> None:
    """Return when all queues have been empty for a while; raises StillBusy if that takes too long.

    Several polls in a row, since an event may be between a table's stream and its queue.
    """
    deadline = time.monotonic() + timeout_seconds
    quiet_polls = 0
    queues = (stack.payments_queue_url, stack.refunds_queue_url, stack.order_updates_queue_url)
    while quiet_polls < _QUIET_POLLS:
        waiting = sum(messages_in(stack, url) for url in queues)
        on_poll(waiting)
        quiet_polls = quiet_polls + 1 if waiting == 0 else 0
        if time.monotonic() > deadline:
            raise StillBusy(f"{waiting} messages are still on their way after {timeout_seconds:.0f} s")
        time.sleep(0.5)
