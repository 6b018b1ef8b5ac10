"""What waits for an outcome, the oldest first: orders and refunds, since when, why, who moves them next.

It reads the indexes waiting and unfinished, then each item; the reason is explain's, without a request to Stripe:
`explain ORDER` says more. Exit status: 0 if everything moves by itself, 1 if something is broken.
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from onecharge.contract.refunds import RefundStatus
from onecharge.orders.transitions import WAITING
from onecharge.orders.waiting import WaitingIndex
from onecharge.payments.charges.store import PaymentStore
from onecharge.runtime.dynamodb import ALL_SHARDS
from ops.clock import lasting, shown
from ops.connection import Stack
from ops.diagnosis import diagnose, is_broken
from ops.errors import ExitStatus
from ops.facts import Facts
from ops.findings import Finding, Severity
from ops.gather import Surroundings, facts_of, surroundings
from ops.output import Report, Table

HELP = "list what waits for an outcome: since when, why, until when; the oldest first"
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
    """How many, and how old."""
    parser.add_argument("--limit", type=int, default=LIMIT, metavar="N", help=f"show N at most (default: {LIMIT})")
    parser.add_argument(
        "--older-than", type=int, default=0, metavar="MINUTES", help="only what waits for so long (default: everything)"
    )


def run(stack: Stack, arguments: Namespace) -> Report:
    """Each waiting order with its first finding."""
    now = int(time.time())
    # What was placed within this second is older than none.
    waiters = waiting(stack, until=now + 1 - arguments.older_than * 60)
    around = surroundings(stack, now=now)
    explained = [(waiter, _explained(stack, waiter.order_id, around)) for waiter in waiters[: arguments.limit]]
    return report_of(explained, total=len(waiters), now=now)


def waiting(stack: Stack, *, until: float) -> list[Waiter]:
    """Everything that waits since then or longer, the oldest first; each order once for each thing that waits."""
    found = [*_orders(stack, until), *_payments(stack, until)]
    found += _refunds(stack, until)
    by_name: dict[tuple[str, str], Waiter] = {}
    for each in sorted(found, key=lambda waiter: waiter.since):
        by_name.setdefault((each.order_id, each.what.split()[0]), each)
    # A payment whose order waits is the order's own reason.
    ordered = {each.order_id for each in by_name.values() if each.what.startswith("order")}
    return [each for each in by_name.values() if not (each.what.startswith("payment") and each.order_id in ordered)]


def _orders(stack: Stack, until: float) -> Iterator[Waiter]:
    index = WaitingIndex(stack.dynamodb, stack.resource("OrdersTable"), "placed_at")
    for entry in index.entries(until=until):
        if entry["status"] in WAITING:
            yield Waiter(entry["order_id"], _epoch(entry["placed_at"]), f"order {entry['status']}")


def _refunds(stack: Stack, until: float) -> Iterator[Waiter]:
    index = WaitingIndex(stack.dynamodb, stack.resource("OrderRefundsTable"), "requested_at")
    for entry in index.entries(until=until):
        if entry["status"] == RefundStatus.PENDING:
            yield Waiter(entry["order_id"], _epoch(entry["requested_at"]), f"refund {entry['refund_id']}")


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


def _explained(stack: Stack, order_id: str, around: Surroundings) -> tuple[Facts, list[Finding]]:
    facts = facts_of(stack, order_id, around)
    return facts, diagnose(facts)


def report_of(explained: list[tuple[Waiter, tuple[Facts, list[Finding]]]], *, total: int, now: int) -> Report:
    """A line for each."""
    rows, documents, styles = [], [], []
    for waiter, (facts, findings) in explained:
        first = findings[0]
        until = first.next.until if first.next else None
        mover = first.next.mover if first.next else "you"
        rows.append((waiter.order_id, waiter.what, lasting(now - waiter.since), _why(first), mover, _until(until)))
        styles.append("red" if first.severity is Severity.BROKEN else None)
        documents.append(
            {
                "order_id": waiter.order_id,
                "what": waiter.what,
                "since": shown(waiter.since),
                "waiting_seconds": int(now - waiter.since),
                "states": {
                    "orders": facts.order.status if facts.order else None,
                    "payments": facts.payment.state if facts.payment else None,
                },
                "cause": first.cause.name,
                "detail": first.detail,
                "next": mover,
                "until": shown(until) if until else None,
            }
        )
    columns = ("order", "what", "waits for", "why", "who moves it next", "by")
    title = f"{total} wait" + (f", the oldest {len(rows)} of them" if len(rows) < total else "")
    broken = any(is_broken(findings) for _, (_, findings) in explained)
    status = ExitStatus.FOUND if broken else ExitStatus.OK
    return Report({"total": total, "pending": documents}, [Table(title, columns, rows, styles)], status)


def _why(finding: Finding) -> str:
    return f"{finding.cause}" + (f": {finding.detail}" if finding.detail else "")


def _until(until: int | None) -> str | None:
    return shown(until) if until else None


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
