"""The functions' log lines: events of CloudWatch Logs ─► lines, and the lines of each order. Pure.

A line is Powertools' (onecharge.runtime.logs), a request to Stripe in embedded metric format (stripe_client.py), or
Lambda's own, which says that a function has timed out.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from onecharge.contract.events import ORDER_ID_PATTERN

STRIPE_REQUEST = "stripe request"
CLAIMED, FINALIZED, WAITS = "payment claimed", "payment finalized", "message waits"
LEASED, DUPLICATE = "duplicate waits for the lease", "duplicate ignored"
"""A refused claim: the message comes again, or is deleted. The second line goes on with the reason."""
HELD = "payment held: an operator releases it"
TIMED_OUT = "worker killed at its timeout"
ENDS = frozenset({FINALIZED, HELD, "payment not finished", "write refused: lease lost, or cancellation requested"})
"""The last line of a delivery that has claimed the row."""
_VERBS = {
    "POST /v1/payment_intents": "create",
    "POST /v1/payment_intents/{id}/confirm": "confirm",
    "POST /v1/payment_intents/{id}/cancel": "cancel",
    "GET /v1/payment_intents/{id}": "retrieve",
    "POST /v1/refunds": "refund",
}


@dataclass(frozen=True)
class Line:
    """A log line; its fields include the log stream, as `worker`: one for each execution environment."""

    at: float
    fields: Mapping[str, Any]

    @property
    def message(self) -> str:
        return str(self.fields.get("message", STRIPE_REQUEST))

    @property
    def service(self) -> str:
        return str(self.fields["service"])

    @property
    def worker(self) -> str:
        return str(self.fields.get("worker", ""))

    @property
    def delivery(self) -> tuple[str, int] | None:
        """The message id and its receive count."""
        found = self.fields.get("message_id"), self.fields.get("receive_count")
        return (str(found[0]), int(found[1])) if found[0] and found[1] else None

    @property
    def verb(self) -> str:
        """A request to Stripe, in one word if it is one of a payment's; else its endpoint, or ""."""
        endpoint = str(self.fields.get("endpoint", ""))
        return _VERBS.get(endpoint, endpoint)

    @property
    def is_replay(self) -> bool:
        return self.fields.get("replayed") == "true"


def line_of(event: Mapping[str, Any]) -> Line | None:
    """The line of an event; None if it is none of ours."""
    worker, message, at = event["logStreamName"], event["message"].strip(), event["timestamp"] / 1000
    if "Task timed out" in message:
        return Line(at, {"message": TIMED_OUT, "service": "charge_order", "worker": worker, "lambda": message})
    try:
        fields = json.loads(message)
    except ValueError:
        return None
    if not isinstance(fields, dict) or "service" not in fields:
        return None
    metrics = fields.pop("_aws", None)
    if "StripeSeconds" in fields:
        at = metrics["Timestamp"] / 1000
    elif "message" not in fields:
        return None
    elif stamp := fields.get("timestamp"):  # The event's own time is that of the invocation's end.
        at = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f%z").timestamp()
    return Line(at, {**fields, "worker": worker})


def by_order(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Each order's lines, the earliest first.

    A request to Stripe may name only the PaymentIntent, which another line of the order names. Lambda's timeout belongs
    to the orders that its worker had claimed and not ended.
    """
    ordered = sorted(lines, key=lambda line: line.at)
    order_of = {line.fields.get("payment_intent_id"): line.fields.get("order_id") for line in ordered}
    found: dict[str, list[Line]] = {}
    open_at: dict[str, set[str]] = {}
    for line in ordered:
        order_id = str(line.fields.get("order_id") or order_of.get(line.fields.get("stripe_object", "")))
        if re.fullmatch(ORDER_ID_PATTERN, order_id):
            found.setdefault(order_id, []).append(line)
            if line.message == CLAIMED:
                open_at.setdefault(line.worker, set()).add(order_id)
            elif line.message in ENDS:
                open_at.get(line.worker, set()).discard(order_id)
        elif line.message == TIMED_OUT:
            for cut_off in open_at.pop(line.worker, set()):
                found[cut_off].append(line)
    return found
