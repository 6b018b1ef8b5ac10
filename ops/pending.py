"""What waits for an outcome, the oldest first: orders and refunds, since when, why, what moves them next.

It reads the indexes waiting and unfinished, then each item; the reason is explain's, without a request to Stripe:
`explain ORDER` says more. Exit status: 0 if everything moves by itself, 1 if something is broken.
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from onecharge.orders.transitions import WAITING
from onecharge.orders.waiting import WaitingIndex
from onecharge.payments.charges.store import PaymentStore
from onecharge.runtime.dynamodb import ALL_SHARDS
from ops.connection import Stack
from ops.errors import ExitStatus
from ops.facts import gather, surroundings
from ops.findings import Severity
from ops.output import Report, Table, duration_of, time_of
from ops.story import story

LIMIT = 100
_PAGE = 100


@dataclass(frozen=True)
class Waiter:
    """An order that waits, or whose refund or payment does."""

    order_id: str
    since: float
    """Epoch seconds."""
    what: str


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, default=LIMIT, metavar="N", help=f"show N at most (default: {LIMIT})")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Each waiting order with its first finding."""
    now = int(time.time())
    waiters = waiting(stack, until=now + 1)  # With what was placed within this second.
    around = surroundings(stack, now=now)
    documents, styles = [], []
    for waiter in waiters[: arguments.limit]:
        first = story(gather(stack, waiter.order_id, around, asks_stripe=False)).findings[0]
        until = time_of(first.next.until) if first.next and first.next.until else None
        document = {
            "order_id": waiter.order_id,
            "what": waiter.what,
            "since": time_of(waiter.since),
            "waits_for": duration_of(now - waiter.since),
            "cause": first.cause.name,
            "says": first.cause.says,
            "detail": first.detail,
            "next": first.next.mover if first.next else "you",
            "until": until,
        }
        documents.append(document)
        styles.append("red" if first.severity is Severity.BROKEN else None)
    shown = len(documents)
    title = f"{len(waiters)} wait" + (f", the oldest {shown} of them" if shown < len(waiters) else "")
    table = Table.of(title, "order_id what waits_for says detail next until", documents, styles)
    status = ExitStatus.FOUND if any(styles) else ExitStatus.OK
    return Report({"total": len(waiters), "pending": documents}, [table], status)


def waiting(stack: Stack, *, until: float) -> list[Waiter]:
    """Everything that waits since then or longer, the oldest first; each order once for each thing that waits."""
    found = [*_orders_and_refunds(stack, until), *_payments(stack, until)]
    by_name: dict[tuple[str, str], Waiter] = {}
    for each in sorted(found, key=lambda waiter: waiter.since):
        by_name.setdefault((each.order_id, each.what.split()[0]), each)
    # A payment whose order waits is the order's own reason.
    ordered = {each.order_id for each in by_name.values() if each.what.startswith("order")}
    return [each for each in by_name.values() if not (each.what.startswith("payment") and each.order_id in ordered)]


def _orders_and_refunds(stack: Stack, until: float) -> Iterator[Waiter]:
    """What the index `waiting` has, without what waits for a person."""
    for table, age in (("OrdersTable", "placed_at"), ("OrderRefundsTable", "requested_at")):
        for entry in WaitingIndex(stack.dynamodb, stack.resource(table), age).entries(until=until):
            if entry["status"] in WAITING:
                what = f"refund {entry['refund_id']}" if "refund_id" in entry else f"order {entry['status']}"
                yield Waiter(entry["order_id"], datetime.fromisoformat(entry[age]).timestamp(), what)


def _payments(stack: Stack, until: float) -> Iterator[Waiter]:
    """Unfinished rows: their order may be lost, or not wait any more."""
    store = PaymentStore(stack.dynamodb, stack.resource("PaymentsTable"))
    for shard in ALL_SHARDS:
        after: Any = None
        while True:
            order_ids, after = store.unfinished(shard, claimed_before=int(until), after=after, limit=_PAGE)
            for order_id in order_ids:
                payment = store.read(order_id)
                if payment is not None:
                    yield Waiter(order_id, payment.attempt_claimed_at, f"payment {payment.state}")
            if after is None:
                break
