"""What waits for an outcome, the oldest first: orders and refunds, since when, why, what moves them next.

It reads the indexes waiting and unfinished, then the items of the oldest 100; the reason is explain's, without a
request to Stripe: `explain ORDER` says more. Exit status: 0 if all moves by itself, 1 if something is broken.

With --alarms it lists the orders that alarms were about instead, from the log of the last day, the newest first.
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from onecharge.orders.waiting import WaitingIndex
from ops.connection import Stack
from ops.explain import described
from ops.facts import gather
from ops.findings import Severity, find
from ops.look import unfinished
from ops.output import Report, duration_of, time_of

_ALARMS_SECONDS = 24 * 3600
_SHOWN_MAX = 100


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--alarms", action="store_true", help="the orders that alarms of the last day were about")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Each waiting order with its first finding: what is held names the command that releases it."""
    now = int(time.time())
    if arguments.alarms:
        return _alarmed(stack, now - _ALARMS_SECONDS)
    found = set(_waiting(stack, until=now + 1))  # With what was placed within this second.
    orders = {order_id for _, order_id, what in found if what.startswith("order")}
    rows = [
        (each.claimed_at, each.request.order_id, f"payment {each.state}")
        for each in unfinished(stack.payments, now + 1)
    ]
    found |= {each for each in rows if each[1] not in orders}  # A payment's reason is its order's, if that waits.
    documents = list[dict[str, Any]]()
    for since, order_id, what in sorted(found)[:_SHOWN_MAX]:
        first = find(gather(stack, order_id, asks_stripe=False))[0]
        documents.append(
            {"order_id": order_id, "what": what, "waits_for": duration_of(now - since), **described(first)}
        )
    is_broken = any(each["severity"] == Severity.BROKEN.name for each in documents)
    return Report({"total": len(found), "pending": documents}, is_wrong=is_broken)


def _waiting(stack: Stack, until: float) -> Iterator[tuple[float, str, str]]:
    """What the index `waiting` has."""
    for table, since in (("OrdersTable", "waiting_since"), ("OrderRefundsTable", "requested_at")):
        index = WaitingIndex(stack.dynamodb, stack.resource(table), since)
        for entry in index.entries(until=until):
            what = f"refund {entry['refund_id']}" if "refund_id" in entry else f"order {entry['status']}"
            yield index.since_of(entry), entry["order_id"], what


def _alarmed(stack: Stack, since: float) -> Report:
    """Each order and cause once, with its newest line."""
    found = dict[tuple[str, str], dict[str, Any]]()
    # The metric's own lines have no message.
    lines = [each for page in stack.log("{ $.cause = * && $.message = * }", since) for each in page]
    for at, line in sorted(lines, key=lambda each: each[0]):
        if not (line.get("cause") and line.get("message")):  # The emulator returns every line.
            continue
        about = str(line.get("order_id") or line.get("payment_intent_id") or "")
        key = line["cause"], about
        times = found.pop(key)["times"] + 1 if key in found else 1
        why = next((f": {line[name]}" for name in ("why", "error") if line.get(name)), "")
        found[key] = {"at": time_of(at), "cause": line["cause"], "order_id": about, "times": times}
        found[key]["says"] = f"{line['message']}{why}"
    return Report({"total": len(found), "alarms": [*reversed(found.values())]}, is_wrong=bool(found))
