"""Reads what the console shows: CloudWatch Logs, the tables, Stripe's charges. It writes nothing.

A page asks every second or two, and several pages may be open: what was read a moment ago is shared.
"""

import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Lock
from typing import Any

import stripe

from console.lines import FILTER, Line, by_order, line_of
from console.tally import Seen, Stored
from console.timeline import Timeline, timeline
from console.why import why_once
from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.contract.states import OrderStatus
from onecharge.payments.payment_intents import metadata_of
from onecharge.runtime.dynamodb import from_item, read_items
from ops.connection import Stack
from ops.facts import Surroundings, gather, surroundings
from ops.story import Story, story

LINES_MAX = 50_000
"""Of the log, the latest; a busy stack's older orders leave the list."""
ROWS_MAX = 200
"""Orders whose items are read."""
CHARGES_MAX = 2_000
_EVENTS_OF_A_PAGE = 10_000
_FRESH_SECONDS = 1.0
_SURROUNDINGS_SECONDS = 15.0
"""The DLQs among them, whose messages are hidden for the moment of a read."""
_LATE_SECONDS = 20.0
"""A line may reach CloudWatch so much later than one with a later time."""


@dataclass(frozen=True)
class OrderSeen:
    """One order: its story, as explain tells it, and the same among the lines of the log."""

    story: Story
    timeline: Timeline
    why_once: str


@dataclass
class Reader:
    """Reads one stack, from `since` on (epoch seconds)."""

    stack: Stack
    since: float
    _lines: deque[Line] = field(default_factory=lambda: deque(maxlen=LINES_MAX))
    _known: set[str] = field(default_factory=set)
    _read_until: float = 0.0
    _seen: Seen | None = None
    _around: Surroundings | None = None
    _lock: Lock = field(default_factory=Lock)

    # ------------------------------------------------------------ all orders

    def look(self) -> Seen:
        """Everything, as it is now. Raises botocore's and Stripe's errors."""
        with self._lock:
            now = time.time()
            if self._seen is None or now - self._seen.now >= _FRESH_SECONDS:
                self._seen = self._look(now)
            return self._seen

    def _look(self, now: float) -> Seen:
        since = max(self.since, self._read_until - _LATE_SECONDS)
        read = list(self._read_log(since, now))
        self._lines.extend(line for id_, _, line in read if line and id_ not in self._known)
        # The next look begins before the end of this one, and not before its beginning.
        self._known = {id_ for id_, _, _ in read}
        # The emulator returns no token for what is left.
        self._read_until = now if len(read) < _EVENTS_OF_A_PAGE else read[-1][1]
        lines = by_order(self._lines)
        ledger_read = True
        try:
            charges, is_complete = self._charges()
        except (stripe.APIError, stripe.APIConnectionError, stripe.RateLimitError):
            # What happens meanwhile is in the log and the tables.
            charges, is_complete = list(self._seen.charges if self._seen else ()), False
            ledger_read = False
        newest = sorted(lines, key=lambda order_id: -lines[order_id][-1].at)[:ROWS_MAX]
        unlogged = sorted({*charges} - {*newest})[:ROWS_MAX]
        return Seen(now, lines, self._stored([*newest, *unlogged]), charges, is_complete, ledger_read)

    def _read_log(self, since: float, until: float) -> Iterator[tuple[str, float, Line | None]]:
        """Each event of that time: what tells it from all others, when it was received, and its line, if it has one."""
        pages = (
            self.stack.client("logs")
            .get_paginator("filter_log_events")
            .paginate(
                logGroupName=self.stack.resource("FunctionsLogGroup"),
                filterPattern=FILTER,
                startTime=int(since * 1000),
                endTime=int(until * 1000) + 1000,
            )
        )
        for event in (each for page in pages for each in page["events"]):
            # The emulator gives events no id.
            id_ = event.get("eventId") or f"{event['timestamp']} {event.get('logStreamName')} {event['message']}"
            yield id_, event["timestamp"] / 1000, line_of(event)

    def _stored(self, order_ids: Iterable[str]) -> dict[str, Stored]:
        keys = [{"order_id": each} for each in dict.fromkeys(order_ids)]
        items = map(from_item, read_items(self.stack.dynamodb, self.stack.resource("OrdersTable"), keys))
        return {str(each["order_id"]): _stored(each) for each in items}

    def _charges(self) -> tuple[list[str], bool]:
        """The order of each charge since then that succeeded, if it is ours; and whether these are all."""
        found: list[str] = []
        listed = self.stack.stripe.v1.charges.list({"created": {"gte": int(self.since)}, "limit": 100})
        for number, each in enumerate(listed.auto_paging_iter()):
            if number >= CHARGES_MAX:
                return found, False
            metadata = metadata_of(each)
            order_id, is_ours = metadata.get("order_id", ""), metadata.get("shop") == self.stack.shop
            if each.status == "succeeded" and is_ours and re.match(ORDER_ID_PATTERN, order_id):
                found.append(order_id)
        return found, True

    # ------------------------------------------------------------ one order

    def order(self, order_id: str, pressed: Sequence[tuple[float, str]] = ()) -> OrderSeen:
        """With the buttons that were pressed for it, and when. Raises as `look`."""
        lines = self.look().lines.get(order_id, [])
        with self._lock:
            now = time.time()
            if self._around is None or now - self._around.now >= _SURROUNDINGS_SECONDS:
                self._around = surroundings(self.stack, now=int(now))
            around = replace(self._around, now=int(now))
        facts = gather(self.stack, order_id, around)
        if not lines and facts.order:
            # It was placed before the console began to look.
            placed = datetime.fromisoformat(facts.order.placed_at).timestamp()
            read = self._read_log(placed - 60, placed + 3600)
            lines = by_order(line for _, _, line in read if line).get(order_id, [])
        told = story(facts)
        made = timeline(told, lines, hidden_seconds=self._hidden_seconds(), pressed=pressed)
        return OrderSeen(told, made, why_once(lines, told.charges) if told.is_paid else "")

    def _hidden_seconds(self) -> int:
        """The visibility timeout of the payments queue."""
        queue = self.stack.resource("PaymentsQueue")
        answer = self.stack.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["VisibilityTimeout"])
        return int(answer["Attributes"]["VisibilityTimeout"])


def _stored(order: Mapping[str, Any]) -> Stored:
    return Stored(
        status=str(order.get("status", OrderStatus.PENDING)),
        amount_minor=int(order.get("amount_minor", 0)),
        currency=str(order.get("currency", "")),
        placed_at=datetime.fromisoformat(str(order["placed_at"])).timestamp(),
        attempt=int(order.get("attempt", 1)),
        refunded_minor=int(order.get("stripe_refunded_minor", 0)),
    )
