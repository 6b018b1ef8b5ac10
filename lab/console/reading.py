"""Reads what the console shows: the functions' log, the Orders table, Stripe's charges. It writes nothing."""

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import stripe

from lab.console.lines import Line, by_order, line_of
from lab.console.orders import Tally, tally
from lab.console.timeline import Timeline, timeline
from local.observe import log_events
from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.payments.payment_intents import metadata_of
from onecharge.runtime.dynamodb import from_item
from ops.connection import Stack
from ops.explain import events, states
from ops.facts import gather
from ops.findings import Finding, find

_LATE_SECONDS = 20.0
"""A line may reach the log this much later than one with a later time."""


@dataclass(frozen=True)
class OrderSeen:
    """One order, as `explain` tells it, with what happened in lanes."""

    states: Sequence[Mapping[str, str]]
    findings: Sequence[Finding]
    timeline: Timeline
    charges: int | None
    """Charges that succeeded, by Stripe's ledger; None if Stripe does not answer."""


@dataclass
class Reader:
    """Reads one stack. Methods raise botocore's errors."""

    stack: Stack
    since: float
    """Charges before this time are not read, in epoch seconds."""
    _lines: dict[str, Line | None] = field(default_factory=dict)
    """By what tells an event from all others: the emulator gives it no id."""
    _read_until: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def look(self) -> Tally:
        """All orders, as they are now."""
        lines = self._lines_by_order()
        charged = self._charged()
        counted = None if charged is None else Counter({order_id: len(ids) for order_id, ids in charged.items()})
        return tally(lines, self._items(), counted, time.time())

    def _lines_by_order(self) -> Mapping[str, Sequence[Line]]:
        with self._lock:
            now, since = time.time(), max(0.0, self._read_until - _LATE_SECONDS)
            group = self.stack.value("FunctionsLogGroup")
            for event in log_events(self.stack.client("logs"), group, since_ms=int(since * 1000)):
                id_ = f"{event['timestamp']} {event['logStreamName']} {event['message']}"
                self._lines.setdefault(id_, line_of(event))
            self._read_until = now
            return by_order(filter(None, self._lines.values()))

    def _items(self) -> dict[str, Mapping[str, Any]]:
        pages = self.stack.dynamodb.get_paginator("scan").paginate(TableName=self.stack.value("OrdersTable"))
        items = (from_item(each) for page in pages for each in page["Items"])
        return {str(each["order_id"]): each for each in items}

    def _charged(self) -> Mapping[str, Sequence[str]] | None:
        """The PaymentIntent of each charge of our orders that succeeded; None if Stripe does not answer."""
        try:
            listed = self.stack.stripe.v1.charges.list({"created": {"gte": int(self.since)}, "limit": 100})
            succeeded = [each for each in listed.auto_paging_iter() if each.status == "succeeded"]
        except stripe.StripeError:
            return None
        found: dict[str, list[str]] = {}
        for each in succeeded:
            given = metadata_of(each)
            order_id = given.get("order_id", "")
            if given.get("shop") == self.stack.value("ShopId") and re.fullmatch(ORDER_ID_PATTERN, order_id):
                found.setdefault(order_id, []).append(str(each.payment_intent))
        return found

    def order(self, order_id: str, pressed: Sequence[tuple[float, str]] = ()) -> OrderSeen:
        """One order, with the buttons that were pressed for it, and when."""
        lines = [(each.at, each.fields) for each in self._lines_by_order().get(order_id, ())]
        charged = self._charged()
        ids = (charged or {}).get(order_id, ())
        facts = gather(self.stack, order_id, intent_ids=ids, lines=lines)
        shown = timeline(events(facts), facts.now, hidden_seconds=self._hidden_seconds(), pressed=pressed)
        return OrderSeen(list(states(facts)), find(facts), shown, None if charged is None else len(ids))

    def _hidden_seconds(self) -> int:
        """The visibility timeout of the payments queue."""
        queue = self.stack.value("PaymentsQueue")
        answer = self.stack.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["VisibilityTimeout"])
        return int(answer["Attributes"]["VisibilityTimeout"])
