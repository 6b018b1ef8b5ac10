"""The functions' log lines: events of CloudWatch Logs ─► lines. Pure.

A line is Powertools' (onecharge.runtime.logs), a request to Stripe in embedded metric format (stripe_client.py), or
Lambda's own, that a function has timed out.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

STRIPE_REQUEST = "stripe request"
TIMED_OUT = "timed out"
LEASED, DUPLICATE = "duplicate waits for the lease", "duplicate ignored"
"""A claim that was refused: the message comes again, or is deleted. The line of the latter goes on with why."""
_VERBS = {
    "POST /v1/payment_intents": "create",
    "POST /v1/payment_intents/{id}/confirm": "confirm",
    "POST /v1/payment_intents/{id}/cancel": "cancel",
    "GET /v1/payment_intents/{id}": "retrieve",
    "GET /v1/disputes": "list disputes",
    "POST /v1/refunds": "refund",
    "GET /v1/refunds": "list refunds",
}
FILTER = (
    '{ ($.order_id = "ord_*") || ($.stripe_object = "pi_*") || ($.wait_seconds > 0) || ($.record.status = "timeout") }'
)
"""What CloudWatch returns of a log group: lines about orders (CloudWatch Logs User Guide, "Filter pattern syntax")."""


@dataclass(frozen=True)
class Line:
    """What one line says."""

    at: float
    """Epoch seconds, to the millisecond."""
    message: str
    service: str = ""
    worker: str = ""
    """The log stream: one for each execution environment of a function."""
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def order_id(self) -> str | None:
        return self.fields.get("order_id")

    @property
    def delivery(self) -> tuple[str, int] | None:
        """The message and how often it had been received: one delivery."""
        found = self.fields.get("message_id"), self.fields.get("receive_count")
        return (str(found[0]), int(found[1])) if found[0] and found[1] else None

    @property
    def verb(self) -> str:
        """Of a request to Stripe: in a word, or its endpoint."""
        endpoint = str(self.fields.get("endpoint"))
        return _VERBS.get(endpoint, endpoint)

    @property
    def is_replay(self) -> bool:
        return self.fields.get("replayed") == "true"


def line_of(event: Mapping[str, Any]) -> Line | None:
    """The line of an event; None if it is about no order."""
    worker, message, at = event.get("logStreamName", ""), event["message"].strip(), event["timestamp"] / 1000
    if "Task timed out" in message:
        return Line(at, TIMED_OUT, worker=worker, fields={"message": message})
    try:
        fields = json.loads(message)
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    if "StripeSeconds" in fields:
        return Line(
            fields["_aws"]["Timestamp"] / 1000, STRIPE_REQUEST, fields["service"], worker, _without_metrics(fields)
        )
    if isinstance(record := fields.get("record"), dict) and record.get("status") == "timeout":
        return Line(at, TIMED_OUT, worker=worker, fields=record)
    if "message" not in fields or "service" not in fields:
        return None
    return Line(_time_of(fields, at), str(fields["message"]), str(fields["service"]), worker, fields)


def _without_metrics(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "_aws"}


def _time_of(fields: Mapping[str, Any], otherwise: float) -> float:
    try:
        return datetime.strptime(str(fields.get("timestamp")), "%Y-%m-%d %H:%M:%S,%f%z").timestamp()
    except ValueError:
        return otherwise


def by_order(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Each order's lines, the earliest first.

    A request to Stripe may name only the PaymentIntent, which another line of the order names; Lambda's timeout is of
    the worker that had begun with an order, and wrote no end.
    """
    ordered = sorted(lines, key=lambda line: line.at)
    order_of = {
        line.fields["payment_intent_id"]: line.order_id for line in ordered if line.fields.get("payment_intent_id")
    }
    found: dict[str, list[Line]] = {}
    open_at: dict[str, set[str]] = {}
    for line in ordered:
        order_id = line.order_id or order_of.get(line.fields.get("stripe_object", ""))
        if order_id and re.fullmatch(r"ord_[0-9a-f]{32}", order_id):
            found.setdefault(order_id, []).append(line)
            if line.message == "payment claimed":
                open_at.setdefault(line.worker, set()).add(order_id)
            elif line.message in ENDS:
                open_at.get(line.worker, set()).discard(order_id)
        elif line.message == TIMED_OUT:
            for cut_off in open_at.pop(line.worker, set()):
                found[cut_off].append(line)
    return found


HELD = "payment held: an operator releases it"
ENDS = frozenset(
    {"payment finalized", "payment not finished", HELD, "write refused: lease lost, or cancellation requested"}
)
"""The last line of a delivery that has claimed the row."""
