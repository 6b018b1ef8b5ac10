"""Restore what was lost. docs/runbook.md, "Restore a table", has the whole procedure.

rows      copy the rows that a table lacks from the table that DynamoDB restored. A row that exists is never
          touched: it was written since. Can be repeated, and continued after an interruption.
outcomes  afterwards, bring orders, payments and Stripe together, whichever of them the restore has set back: let
          reconcile read Stripe's events again since a day before the restored point in time, and emit each payment's
          outcome that its order has not seen, with a revision above what the order has seen; let each order have
          reserved what its refunds say. Can be repeated, and continued.
"""

import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

from onecharge.contract.refunds import RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.store import OrderStore
from onecharge.payments.charges.protocol import Finalize, Payment
from onecharge.payments.charges.store import PaymentStore, payment_of
from onecharge.payments.reconcile_checkpoint import ReconcileCheckpoint
from onecharge.runtime.checkpoints import Checkpoint, CheckpointStore, ConcurrentRun
from onecharge.runtime.dynamodb import expression_values, from_item, read_items, to_item
from onecharge.runtime.parallel import Parallel, Threads, one_after_another
from ops.connection import Stack
from ops.errors import ExitStatus, Problem
from ops.output import Report, Table
from ops.schedule import unattended_at

TABLES = ("PaymentsTable", "RefundsTable", "OrdersTable", "OrderRefundsTable", "DueDocumentsTable")
"""The tables that hold orders and payments."""
_THREADS = 16
_SHOWN_MAX = 50
_EVENTS_DAYS = 30
"""How long Stripe lists an event (Stripe API reference, "Events")."""
EVENT_LATE_SECONDS = 25 * 3600
"""How long after Stripe has created an event it may have been applied: reconcile retries one for a day, and clocks
differ by less than an hour. What was applied after the restored point in time is lost."""

_ROWS_MAX = 100_000
_PAGE = 100
"""Payments of one request: as many orders are read with one, too."""

EMITTED, RAISED = "emitted again", "older than its order has seen: its revision was raised"
SEEN, ORDER_LOST = "its order has seen it", "its order is lost"
CHANGED = "a worker may have it, or it changed meanwhile: run this again later"
RESERVED, REFUND_LOST = "reserved again what its refunds say", "more is reserved than its refunds say: one is lost"
_NOT_ASKED_FOR = (OrderStatus.PAYMENT_DECLINED, OrderStatus.CANCELED, OrderStatus.NEEDS_REVIEW)
"""An order that waits is asked for by republish; one that is PAID has a PaymentIntent that reconcile finds."""
MISSING, COPIED, SAME, DIFFERENT, EXPIRED = "missing", "copied", "already there", "different: left as it is", "expired"

Item = Mapping[str, Any]
"""In DynamoDB's JSON."""


def add_arguments(parser: ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="subcommand", required=True)
    rows = subcommands.add_parser("rows", help="copy the rows that a table lacks")
    rows.add_argument("--table", required=True, choices=TABLES, help="the stack's table, by its logical id")
    rows.add_argument("--from", dest="source", required=True, metavar="TABLE", help="name of the restored table")
    outcomes = subcommands.add_parser("outcomes", help="bring orders, payments and Stripe together again")
    outcomes.add_argument("--since", required=True, type=_time, help="the restored point in time: 2026-11-21T12:00:00Z")
    outcomes.add_argument("--rows", type=int, default=_ROWS_MAX, metavar="N", help="stop after so many payments")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    if arguments.subcommand == "outcomes":
        return _outcomes(stack, arguments.since, rows_max=arguments.rows, is_dry_run=not arguments.yes)
    return _copy_rows(stack, arguments.table, arguments.source, is_dry_run=not arguments.yes)


# ---------------------------------------------------------------- rows


def _copy_rows(stack: Stack, logical_id: str, source: str, *, is_dry_run: bool) -> Report:
    """Copy what the table lacks, and report the result of each row. Raises Problem if the tables do not match."""
    target = stack.resource(logical_id)
    if source == target:
        raise Problem(f"{source} is the stack's own table: --from names the restored one")
    key = _key_names(stack, target)
    if _key_names(stack, source) != key:
        raise Problem(f"{source} has another key than {target}: was it restored from that table?")
    counts, different = Counter[str](), list[str]()
    for page in stack.dynamodb.get_paginator("scan").paginate(TableName=source, ConsistentRead=True):
        for item, result in copied(stack, target, key, page["Items"], is_dry_run=is_dry_run):
            counts[result] += 1
            if result == DIFFERENT:
                different.append(" ".join(next(iter(item[name].values())) for name in key))
    parts: list[Table | str] = [Table(f"{logical_id} from {source}", ("row", "rows"), sorted(counts.items()))]
    if different:
        shown = [[each] for each in different[:_SHOWN_MAX]]
        parts.append(Table("different: the table's own row is kept", ("key",), shown))
    if counts[MISSING]:
        parts.append("dry run: --yes copies the missing rows")
    document = {"table": logical_id, "from": source, "rows": dict(counts), "different": different}
    return Report(document, parts, ExitStatus.FOUND if counts[MISSING] else ExitStatus.OK)


def _key_names(stack: Stack, table: str) -> list[str]:
    schema = stack.dynamodb.describe_table(TableName=table)["Table"]["KeySchema"]
    return [each["AttributeName"] for each in schema]


def copied(
    stack: Stack, target: str, key: list[str], items: Iterable[Item], *, is_dry_run: bool
) -> list[tuple[Item, str]]:
    """Each item with the result of its copy to the target."""
    items = list(items)
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(zip(items, threads.map(partial(_copy, stack, target, key, is_dry_run), items), strict=True))


def _copy(stack: Stack, target: str, key: list[str], is_dry_run: bool, item: Item) -> str:
    if "expires_at" in item and int(item["expires_at"]["N"]) <= time.time():
        return EXPIRED  # DynamoDB would delete it again.
    if is_dry_run:
        key_of_item = {name: item[name] for name in key}
        existing = stack.dynamodb.get_item(TableName=target, Key=key_of_item, ConsistentRead=True).get("Item")
        return MISSING if existing is None else _compared(existing, item)
    try:
        stack.dynamodb.put_item(
            TableName=target,
            Item=dict(item),
            ConditionExpression="attribute_not_exists(#key)",
            ExpressionAttributeNames={"#key": key[0]},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    except stack.dynamodb.exceptions.ConditionalCheckFailedException as refused:
        return _compared(refused.response["Item"], item)  # type: ignore[typeddict-item]  # As asked for.
    return COPIED


def _compared(existing: Item, item: Item) -> str:
    return SAME if dict(existing) == dict(item) else DIFFERENT


# ---------------------------------------------------------------- outcomes


@dataclass(frozen=True, kw_only=True)
class RestoreCheckpoint(Checkpoint):
    """How far the walk through the payments has come."""

    job: ClassVar[str] = "restore"

    since: int
    """The restored point in time: with another one, a walk begins at the first row."""
    after: Mapping[str, str] | None = None
    """The key of the last row; None once the walk has ended."""


def _time(text: str) -> int:
    """Epoch seconds of a time with its zone. Raises ValueError."""
    parsed = datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError("without a time zone")
    return int(parsed.timestamp())


def _outcomes(stack: Stack, since: int, *, rows_max: int, is_dry_run: bool) -> Report:
    """Raises Problem."""
    checkpoints = CheckpointStore(stack.dynamodb, stack.resource("PaymentsStateTable"), RestoreCheckpoint)
    checkpoint = checkpoints.read() or RestoreCheckpoint(since=since)
    is_continued = checkpoint.since == since and checkpoint.after is not None
    if not is_continued:
        checkpoint = replace(checkpoint, since=since, after=None)
        _reread_events(stack, since, is_dry_run=is_dry_run, now=int(time.time()))
    payments = PaymentStore(stack.dynamodb, stack.resource("PaymentsTable"))
    orders = OrderStore(stack.dynamodb, stack.resource("OrdersTable"))
    refunds = OrderRefundStore(stack.dynamodb, stack.resource("OrderRefundsTable"), orders.table)
    counts, reservations, lost, after = Counter[str](), Counter[str](), list[str](), checkpoint.after
    parallel = Threads(_THREADS)
    while True:
        now = int(time.time())
        compared, after = emit_page(payments, orders, after=after, now=now, is_dry_run=is_dry_run, parallel=parallel)
        for order_id, result in compared:
            counts[result] += 1
            if result == ORDER_LOST:
                lost.append(order_id)
        order_ids = [order_id for order_id, _ in compared]
        reservations.update(reserve_page(orders, refunds, order_ids, is_dry_run=is_dry_run, parallel=parallel))
        if not is_dry_run:
            try:
                checkpoint = checkpoints.write(replace(checkpoint, after=after))
            except ConcurrentRun:
                raise Problem("somebody else runs this, too: let one of you run it again") from None
        if after is None or counts.total() >= rows_max:
            break
    start = datetime.fromtimestamp(since, UTC).isoformat()
    parts: list[Table | str] = [Table("payments and their orders", ("payment", "payments"), sorted(counts.items()))]
    if reservations:
        parts.append(Table("refunds of orders", ("order", "orders"), sorted(reservations.items())))
    if lost:
        parts.append(Table("no order: restore it", ("order",), [[each] for each in lost[:_SHOWN_MAX]]))
    if is_dry_run:
        parts.append(
            f"dry run: --yes does it, and lets reconcile read Stripe's events again since a day before {start}"
        )
    elif after is not None:
        parts.append("there are more payments: run this again")
    document = {
        "since": start,
        "payments": dict(counts),
        "reservations": dict(reservations),
        "lost": lost,
        "is_complete": after is None,
    }
    is_done = not is_dry_run and after is None and CHANGED not in {*counts, *reservations}
    return Report(document, parts, ExitStatus.OK if is_done else ExitStatus.FOUND)


def emit_page(
    payments: PaymentStore,
    orders: OrderStore,
    *,
    after: Item | None,
    now: int,
    is_dry_run: bool = False,
    parallel: Parallel = one_after_another,
) -> tuple[list[tuple[str, str]], dict[str, Any] | None]:
    """Compare one page of payments with their orders, and emit what an order has not seen.

    Returns each order id with its result, and the key of the last row, None at the end. Raises ReadsThrottled, and
    botocore's errors.
    """
    start: Any = {"ExclusiveStartKey": to_item(after)} if after else {}
    page = payments.client.scan(TableName=payments.table, Limit=_PAGE, ConsistentRead=True, **start)
    rows = [payment_of(item) for item in page["Items"]]
    found = {item["order_id"]["S"]: from_item(item) for item in read_items(orders.client, orders.table, _keys(rows))}

    def emit(row: Payment) -> tuple[str, str]:
        order = found.get(row.request.order_id)
        result = ORDER_LOST if order is None else _emit(payments, row, order, now=now, is_dry_run=is_dry_run)
        return row.request.order_id, result

    last = page.get("LastEvaluatedKey")
    return parallel(emit, rows), from_item(last) if last else None


def _keys(rows: Sequence[Payment]) -> list[dict[str, str]]:
    return [row.key for row in rows]


def _emit(payments: PaymentStore, row: Payment, order: Mapping[str, Any], *, now: int, is_dry_run: bool) -> str:
    seen = order.get("payment_revision", 0)
    # Above what the order has seen, also if another clock was ahead of this one.
    emitted_at = max(now, seen + 1)
    is_older, is_pending = row.revision < seen, row.state is PaymentState.PENDING
    is_of_other_money = (row.amount_minor, row.currency) != (order["amount_minor"], order["currency"])
    is_asked_for = order["status"] not in _NOT_ASKED_FOR and not is_of_other_money
    is_left = is_pending and row.cancel_requested_at is None and not is_asked_for
    if not is_left and (row.revision == seen or (is_pending and not is_older)):
        return SEEN
    if is_left and now < unattended_at(row):
        # A worker may have charged it, and its message claims it again.
        return CHANGED
    if is_dry_run:
        return RAISED if is_older else EMITTED
    if is_left:
        # The attempt ended after T, or is of an order that was lost; no message comes that would end it.
        ended = Finalize(PaymentState.DECLINED, code="restored")
        is_written = payments.finalize_unclaimed(row, ended, now=emitted_at)
    else:
        is_written = payments.reemit_outcome(row, now=emitted_at)
    if not is_written:
        return CHANGED
    return RAISED if is_older else EMITTED


def reserve_page(
    orders: OrderStore,
    refunds: OrderRefundStore,
    order_ids: Sequence[str],
    *,
    is_dry_run: bool = False,
    parallel: Parallel = one_after_another,
) -> list[str]:
    """Let each order have reserved the sum of its refunds that have not failed; returns what was not so.

    Raises ReadsThrottled, and botocore's errors.
    """
    items = read_items(orders.client, orders.table, [{"order_id": each} for each in order_ids])

    def reserve(item: Item) -> str | None:
        order = from_item(item)
        # Read after the order: a refund that is requested or fails since changes what the write expects.
        of_order = refunds.of_order(order["order_id"])
        reserved: int = order.get("reserved_minor", 0)
        needed = sum(each.amount_minor for each in of_order if each.status is not RefundState.FAILED)
        if reserved == needed:
            return None
        if reserved > sum(each.amount_minor for each in of_order):
            return REFUND_LOST  # It may have been made: its money is not refundable again.
        if is_dry_run or write_reserved(orders, order["order_id"], needed, instead_of=reserved):
            return RESERVED
        return CHANGED

    return [each for each in parallel(reserve, items) if each is not None]


def write_reserved(orders: OrderStore, order_id: str, reserved_minor: int, *, instead_of: int) -> bool:
    """Write what the order has reserved, in minor units; False if it has changed since it was read."""
    or_none = "" if instead_of else "attribute_not_exists(reserved_minor) OR "
    try:
        orders.client.update_item(
            TableName=orders.table,
            Key=to_item({"order_id": order_id}),
            UpdateExpression="SET reserved_minor = :reserved",
            ConditionExpression=f"attribute_exists(order_id) AND ({or_none}reserved_minor = :read)",
            ExpressionAttributeValues=expression_values(reserved=reserved_minor, read=instead_of),
        )
    except orders.client.exceptions.ConditionalCheckFailedException:
        return False
    return True


def _reread_events(stack: Stack, since: int, *, is_dry_run: bool, now: int) -> None:
    """Let reconcile read Stripe's events again. Raises Problem."""
    if since < now - _EVENTS_DAYS * 24 * 3600:
        raise Problem(f"Stripe lists the events of the last {_EVENTS_DAYS} days: --since is earlier")
    checkpoints = CheckpointStore(stack.dynamodb, stack.resource("PaymentsStateTable"), ReconcileCheckpoint)
    checkpoint = checkpoints.read()
    if checkpoint is None:
        raise Problem("reconcile has not run yet: there is no checkpoint to set back")
    if is_dry_run:
        return
    try:
        # A job that has not come so far continues where it is.
        checkpoints.write(checkpoint.reading_since(min(since - EVENT_LATE_SECONDS, checkpoint.since)))
    except ConcurrentRun:
        raise Problem("reconcile runs at this moment: try again in some minutes") from None
