"""Watches a running stack: messages that wait, log lines of functions, and each order event, in a queue of its own."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from local.stack import Stack

_IDLE_POLLS = 8


class NotIdle(Exception):
    """The queues still hold messages after the timeout."""


def messages_in(stack: Stack, queue_url: str) -> int:
    """All messages of a queue: visible, in flight, or delayed."""
    attributes = stack.aws.client("sqs").get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])["Attributes"]
    return sum(int(count) for name, count in attributes.items() if name.startswith("ApproximateNumberOf"))


def drain(stack: Stack, queue_url: str) -> list[dict[str, Any]]:
    """Receive and delete all messages of a queue."""
    sqs, messages = stack.aws.client("sqs"), list[dict[str, Any]]()
    while True:
        read = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        if not (batch := read.get("Messages", [])):
            return messages
        for message in batch:
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
        messages += batch


def wait_until_idle(stack: Stack, *, timeout_seconds: float, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Return when all queues have been empty for a while; raises NotIdle if that takes too long.

    Several polls in a row, since an event may be between a table's stream and its queue.
    """
    deadline = time.monotonic() + timeout_seconds
    idle_polls = 0
    queues = (stack.payments_queue_url, stack.order_updates_queue_url, stack.refunds_queue_url)
    while idle_polls < _IDLE_POLLS:
        waiting = sum(messages_in(stack, url) for url in queues)
        idle_polls = idle_polls + 1 if waiting == 0 else 0
        if time.monotonic() > deadline:
            raise NotIdle(f"{waiting} messages are still in the queues after {timeout_seconds:.0f} s")
        meanwhile()
        time.sleep(0.5)


def log_events(logs: Any, group: str, *, since_ms: int = 0) -> Iterator[dict[str, Any]]:
    """The events of a log group, oldest first, all of them; `logs` is a client of CloudWatch Logs.

    CloudWatch returns 10,000 events at once, and a token for the next ones. The emulator returns no token, so it is
    asked again, from the time of the last event on, until there is nothing new.
    """
    known = 0  # So many events of the time `since_ms` have been returned.
    while True:
        pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group, startTime=since_ms)
        events = [event for page in pages for event in page["events"]]
        if len(events) == known:
            return
        yield from events[known:]
        since_ms = events[-1]["timestamp"]
        known = sum(event["timestamp"] == since_ms for event in events)
