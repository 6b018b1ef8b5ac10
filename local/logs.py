"""Reads what the functions have logged."""

from collections.abc import Iterator
from typing import Any


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
