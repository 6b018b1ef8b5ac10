"""What waits for an outcome, the oldest first: orders and refunds, since when, why, what moves them next.

It reads the indexes waiting and unfinished, then each item; the reason is explain's, without a request to Stripe:
`explain ORDER` says more. Exit status: 0 if everything moves by itself, 1 if something is broken.

With --alarms it lists the orders that alarms were about instead, from the log of the last day, the newest first.
"""

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from onecharge.orders.waiting import WaitingIndex
from onecharge.payments.charge_rows import PaymentStore
from onecharge.runtime.dynamodb import ALL_SHARDS
from onecharge.runtime.paging import paged
from ops.connection import Stack
from ops.errors import ExitStatus
from ops.explain import STYLES, described
from ops.facts import gather, surroundings
from ops.findings import find
from ops.output import Report, Table, duration_of, time_of

_PAGE = 100
_ALARMS_SECONDS = 24 * 3600


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, default=100, metavar="N", help="show N at most (default: 100)")
    parser.add_argument("--alarms", action="store_true", help="the orders that alarms of the last day were about")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Each waiting order with its first finding: what is held names the command that releases it."""
    now = int(time.time())
    if arguments.alarms:
        return _alarmed(stack, now - _ALARMS_SECONDS, arguments.limit)
    listed = list(_orders_and_refunds(stack, until=now + 1))  # With what was placed within this second.
    orders = {order_id for _, order_id, what in listed if what.startswith("order")}
    # A payment's reason is its order's, if that waits.
    found = sorted({*listed, *(each for each in _payments(stack, until=now + 1) if each[1] not in orders)})
    around = surroundings(stack, now=now)
    documents = []
    for since, order_id, what in found[: arguments.limit]:
        first = find(gather(stack, order_id, around, asks_stripe=False))[0]
        waits = {"since": time_of(since), "waits_for": duration_of(now - since)}
        documents.append({"order_id": order_id, "what": what, **waits, **described(first)})
    shown = len(documents)
    title = f"{len(found)} wait" + (f", the oldest {shown} of them" if shown < len(found) else "")
    styles = [STYLES[each["severity"]] for each in documents]
    table = Table.of(title, "order_id what waits_for says next fix", documents, styles)
    status = ExitStatus.FOUND if "red" in styles else ExitStatus.OK
    return Report({"total": len(found), "pending": documents}, [table], status)


def _orders_and_refunds(stack: Stack, until: float) -> Iterator[tuple[float, str, str]]:
    """What the index `waiting` has."""
    for table, since in (("OrdersTable", "waiting_since"), ("OrderRefundsTable", "requested_at")):
        index = WaitingIndex(stack.dynamodb, stack.resource(table), since)
        for entry in index.entries(until=until):
            what = f"refund {entry['refund_id']}" if "refund_id" in entry else f"order {entry['status']}"
            yield index.since_of(entry), entry["order_id"], what


def _payments(stack: Stack, until: float) -> Iterator[tuple[float, str, str]]:
    """Unfinished rows."""
    store = PaymentStore(stack.dynamodb, stack.resource("PaymentsTable"))
    read = partial(store.unfinished, claimed_before=int(until), limit=_PAGE)
    for order_ids, _ in paged(ALL_SHARDS, read):
        for payment in filter(None, map(store.read, order_ids)):
            yield payment.claimed_at, payment.request.order_id, f"payment {payment.state}"


def _alarmed(stack: Stack, since: float, limit: int) -> Report:
    """Each order and cause once, with its newest line."""
    found = dict[tuple[str, str], dict[str, Any]]()
    for at, line in sorted(_alarm_lines(stack, since), key=lambda each: each[0]):
        about = str(line.get("order_id") or line.get("payment_intent_id") or "")
        key = line["cause"], about
        times = found.pop(key)["times"] + 1 if key in found else 1
        why = next((f": {line[name]}" for name in ("why", "error") if line.get(name)), "")
        found[key] = {"at": time_of(at), "cause": line["cause"], "order_id": about, "times": times}
        found[key]["says"] = f"{line['message']}{why}"
    documents = [*reversed(found.values())]
    table = Table.of(f"{len(found)} in the last day (UTC)", "at cause order_id times says", documents[:limit])
    return Report({"alarms": documents}, [table], ExitStatus.FOUND if found else ExitStatus.OK)


def _alarm_lines(stack: Stack, since: float) -> Iterator[tuple[float, Mapping[str, Any]]]:
    """The metric's own lines have no message."""
    group, pattern = stack.resource("FunctionsLogGroup"), "{ $.cause = * && $.message = * }"
    pages = stack.client("logs").get_paginator("filter_log_events")
    for page in pages.paginate(logGroupName=group, filterPattern=pattern, startTime=int(since * 1000)):
        for event in page["events"]:
            # The emulator returns every line.
            line = json.loads(event["message"]) if event["message"].startswith("{") else {}
            if line.get("cause") and line.get("message"):
                yield event["timestamp"] / 1000, line
