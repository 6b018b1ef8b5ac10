"""What waits for an outcome, the oldest first: orders and refunds, since when, why, what moves them next.

It reads the indexes waiting and unfinished, then the items of the oldest 100; the reason is explain's, without a
request to Stripe: `explain ORDER` says more. With --alarms it reads the log instead, the newest first.
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from onecharge.orders.waiting import WaitingIndex
from ops.connection import Stack
from ops.facts import gather
from ops.findings import BROKEN, find
from ops.output import Report, duration_of, time_of
from ops.release import unfinished

_ALARMS_SECONDS, _REFUNDS_SECONDS = 24 * 3600, 3 * 3600
_SHOWN_MAX = 100


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--alarms", action="store_true", help="the orders that alarms of the last day were about")


def run(stack: Stack, arguments: Namespace) -> Report:
    now = int(time.time())
    if arguments.alarms:
        return _alarmed(stack, now - _ALARMS_SECONDS)
    found = set(_waiting(stack, until=now + 1))  # With what was placed within this second.
    orders = {order_id for _, order_id, what in found if what.startswith("order")}
    rows = [row for row in unfinished(stack.payments, now + 1) if row.request.order_id not in orders]
    found |= {(row.claimed_at, row.request.order_id, f"payment {row.state}") for row in rows}
    lines, listed = [], list[dict[str, Any]]()
    if any(what.startswith("refund") for *_, what in found):  # No table says why a refund is not finished.
        pages = stack.log("{ $.refund_id = * && $.why = * }", now - _REFUNDS_SECONDS)
        lines = [line for page in pages for line in page]
    for since, order_id, what in sorted(found)[:_SHOWN_MAX]:
        of_it = [line for line in lines if line[1].get("order_id") == order_id]
        first = find(gather(stack, order_id, asks_stripe=False, lines=of_it))[0]
        about = {"order_id": order_id, "what": what, "waits_for": duration_of(now - since)}
        listed.append(about | first._asdict())
    return Report({"total": len(found), "pending": listed}, any(each["severity"] == BROKEN for each in listed))


def _waiting(stack: Stack, until: float) -> Iterator[tuple[float, str, str]]:
    for table, since in (("OrdersTable", "waiting_since"), ("OrderRefundsTable", "requested_at")):
        index = WaitingIndex(stack.dynamodb, stack.value(table), since)
        for entry in index.entries(until=until):
            what = f"refund {entry['refund_id']}" if "refund_id" in entry else f"order {entry['status']}"
            yield index.since_of(entry), entry["order_id"], what


def _alarmed(stack: Stack, since: float) -> Report:
    """Each order and cause once, with its newest line."""
    found = dict[tuple[str, str], dict[str, Any]]()
    # The metric's own lines have no message; the emulator returns every line.
    lines = [each for page in stack.log("{ $.cause = * && $.message = * }", since) for each in page]
    lines = [(at, line) for at, line in lines if line.get("cause") and line.get("message")]
    for at, line in sorted(lines, key=lambda each: each[0]):
        about = str(line.get("order_id") or line.get("payment_intent_id") or "")
        times = found.pop((line["cause"], about), {}).get("times", 0) + 1
        why = next((f": {line[name]}" for name in ("why", "error") if line.get(name)), "")
        shown = {"at": time_of(at), "cause": line["cause"], "order_id": about, "times": times}
        shown["payment_intent_id"] = line.get("payment_intent_id")  # `explain` takes it: it may be another one.
        then = f"{stack.command} explain {about}" if about else None
        found[line["cause"], about] = {**shown, "says": f"{line['message']}{why}", "next": then}
    return Report({"total": len(found), "alarms": [*reversed(found.values())]}, is_wrong=bool(found))
