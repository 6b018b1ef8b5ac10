"""What waits for an outcome, the oldest first: orders and refunds, since when, why, what moves them next.

It reads the indexes waiting and unfinished, then each item; the reason is explain's, without a request to Stripe:
`explain ORDER` says more. Exit status: 0 if everything moves by itself, 1 if something is broken.
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import partial

from onecharge.orders.waiting import WaitingIndex
from onecharge.payments.charge_rows import PaymentStore
from onecharge.runtime.dynamodb import ALL_SHARDS
from onecharge.runtime.paging import paged
from ops.connection import Stack
from ops.errors import ExitStatus
from ops.explain import described
from ops.facts import gather, surroundings
from ops.output import Report, Table, duration_of, time_of
from ops.story import story

_PAGE = 100


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, default=100, metavar="N", help="show N at most (default: 100)")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Each waiting order with its first finding: what is held names the command that releases it."""
    now = int(time.time())
    found = waiting(stack, until=now + 1)  # With what was placed within this second.
    around = surroundings(stack, now=now)
    documents = []
    for since, order_id, what in found[: arguments.limit]:
        first = story(gather(stack, order_id, around, asks_stripe=False)).findings[0]
        waits = {"since": time_of(since), "waits_for": duration_of(now - since)}
        documents.append({"order_id": order_id, "what": what, **waits, **described(first, now)})
    shown = len(documents)
    title = f"{len(found)} wait" + (f", the oldest {shown} of them" if shown < len(found) else "")
    styles = ["red" if each["severity"] == "BROKEN" else None for each in documents]
    table = Table.of(title, "order_id what waits_for says detail moves fix", documents, styles)
    status = ExitStatus.FOUND if any(styles) else ExitStatus.OK
    return Report({"total": len(found), "pending": documents}, [table], status)


def waiting(stack: Stack, *, until: float) -> list[tuple[float, str, str]]:
    """What waits since then or longer, the oldest first: since when, of which order, and what.

    A payment is listed only if its order does not wait: it is the order's own reason.
    """
    found = list(_orders_and_refunds(stack, until))
    orders = {order_id for _, order_id, what in found if what.startswith("order")}
    return sorted({*found, *(each for each in _payments(stack, until) if each[1] not in orders)})


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
