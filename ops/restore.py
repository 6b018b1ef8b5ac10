"""Restore what was lost. docs/runbook.md, "Restore a table", has the whole procedure.

rows      copy the rows that a table lacks from the table that DynamoDB restored. A row that exists is never
          touched: it was written since. Can be repeated, and continued after an interruption.
outcomes  afterwards, bring orders, payments and Stripe together, whichever of them the restore has set back: let
          reconcile read Stripe's events again since a day before the restored point in time, and emit each payment's
          outcome that its order has not seen, with a revision above what the order has seen; let each order have
          reserved what its refunds say. Can be repeated.
"""

import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from onecharge.contract.refunds import RefundState
from onecharge.contract.states import PaymentState
from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.store import OrderStore
from onecharge.payments.charge_rows import PaymentStore, payment_of
from onecharge.payments.rows import Payment
from onecharge.payments.stripe_events import ReconcileCheckpoint
from onecharge.runtime.aws import error_code
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import expression_values, from_item, read_items, to_item
from onecharge.runtime.parallel import Parallel, Threads, one_after_another
from ops.connection import Stack
from ops.errors import ExitStatus, Problem
from ops.output import Report, Table

TABLES = ("PaymentsTable", "RefundsTable", "OrdersTable", "OrderRefundsTable")
"""The tables that hold orders and payments."""
EVENT_LATE_SECONDS = 25 * 3600
"""How long after Stripe has created an event it may have been applied: reconcile is at most some hours behind without
an alarm, and clocks differ by less than an hour. What was applied after the restored point in time is lost."""
_EVENTS_DAYS = 30
"""How long Stripe lists an event (Stripe API reference, "Events")."""
_PAGE = 100
"""Payments of one request: as many orders are read with one, too."""
_THREADS, _SHOWN_MAX = 16, 50

MISSING, COPIED, SAME, DIFFERENT, EXPIRED = "missing", "copied", "already there", "different: left as it is", "expired"
EMITTED, SEEN, ORDER_LOST = "emitted again", "its order has seen it, or it is PENDING", "its order is lost"
CHANGED = "it changed meanwhile: run this again"
RESERVED, REFUND_LOST = "reserved again what its refunds say", "more is reserved than its refunds say: one is lost"

Item = Mapping[str, Any]
"""In DynamoDB's JSON."""


def add_arguments(parser: ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="subcommand", required=True)
    rows = subcommands.add_parser("rows", help="copy the rows that a table lacks")
    rows.add_argument("--table", required=True, choices=TABLES, help="the stack's table, by its logical id")
    rows.add_argument("--from", dest="source", required=True, metavar="TABLE", help="name of the restored table")
    outcomes = subcommands.add_parser("outcomes", help="bring orders, payments and Stripe together again")
    outcomes.add_argument("--since", required=True, type=_time, help="the restored point in time: 2026-11-21T12:00:00Z")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    if arguments.subcommand == "outcomes":
        return _outcomes(stack, arguments.since, is_dry_run=not arguments.yes)
    return _copy_rows(stack, arguments.table, arguments.source, is_dry_run=not arguments.yes)


# ---------------------------------------------------------------- rows


def _copy_rows(stack: Stack, logical_id: str, source: str, *, is_dry_run: bool) -> Report:
    """Copy what the table lacks, and report the result of each row. Raises Problem if the tables do not match."""
    target = stack.resource(logical_id)
    if source == target:
        raise Problem(f"{source} is the stack's own table: --from names the restored one")
    own, restored = (stack.dynamodb.describe_table(TableName=name)["Table"] for name in (target, source))
    if _attributes(own) != _attributes(restored):
        # Orders and Payments have the same key, and other indexes.
        raise Problem(f"{source} has other keys or indexes than {target}: was it restored from that table?")
    key = [each["AttributeName"] for each in own["KeySchema"]]
    counts, different, threads = Counter[str](), list[str](), Threads(_THREADS)
    for page in stack.dynamodb.get_paginator("scan").paginate(TableName=source, ConsistentRead=True):
        results = threads(partial(copy, stack, target, key, is_dry_run=is_dry_run), page["Items"])
        counts.update(results)
        for item, result in zip(page["Items"], results, strict=True):
            if result == DIFFERENT:
                different.append(" ".join(str(value) for name in key for value in item[name].values()))
    parts: list[Table | str] = [Table(f"{logical_id} from {source}", ("row", "rows"), sorted(counts.items()))]
    if different:
        parts.append(f"different, and the table's own row is kept: {', '.join(different[:_SHOWN_MAX])}")
    if counts[MISSING]:
        parts.append("dry run: --yes copies the missing rows")
    document = {"table": logical_id, "from": source, "rows": dict(counts), "different": different}
    return Report(document, parts, ExitStatus.FOUND if counts[MISSING] else ExitStatus.OK)


def _attributes(table: Mapping[str, Any]) -> set[str]:
    """The names of all attributes that are part of a key, the table's or an index's."""
    return {each["AttributeName"] for each in table["AttributeDefinitions"]}


def copy(stack: Stack, target: str, key: Sequence[str], item: Item, *, is_dry_run: bool) -> str:
    """Copy the item to the target if that lacks it; returns what was done."""
    if "expires_at" in item and int(item["expires_at"]["N"]) <= time.time():
        return EXPIRED  # DynamoDB would delete it again.
    # A later release may have let the order's PaymentIntent be created, under keys of its own. A worker that believed
    # the earlier release would create a second one. Without `released_at` the row is held, and released after a look.
    item = {name: value for name, value in item.items() if name != "released_at"}
    if not is_dry_run:
        lacks_it = f"attribute_not_exists({key[0]})"
        try:
            stack.dynamodb.put_item(TableName=target, Item=item, ConditionExpression=lacks_it)
            return COPIED
        except ClientError as refused:
            if error_code(refused) != "ConditionalCheckFailedException":
                raise
    key_of_item = {name: item[name] for name in key}
    existing = stack.dynamodb.get_item(TableName=target, Key=key_of_item, ConsistentRead=True).get("Item")
    return MISSING if existing is None else SAME if existing == item else DIFFERENT


# ---------------------------------------------------------------- outcomes


def _time(text: str) -> int:
    """Epoch seconds of a time with its zone. Raises ValueError."""
    parsed = datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError("without a time zone")
    return int(parsed.timestamp())


def _outcomes(stack: Stack, since: int, *, is_dry_run: bool) -> Report:
    """Raises Problem, and ConcurrentRun."""
    _reread_events(stack, since, is_dry_run=is_dry_run)
    payments = PaymentStore(stack.dynamodb, stack.resource("PaymentsTable"))
    orders = OrderStore(stack.dynamodb, stack.resource("OrdersTable"))
    refunds = OrderRefundStore(stack.dynamodb, stack.resource("OrderRefundsTable"), orders.table)
    emit = partial(emit_page, payments, orders, refunds=refunds, is_dry_run=is_dry_run, parallel=Threads(_THREADS))
    counts, reservations, lost = Counter[str](), Counter[str](), list[str]()
    after: Item | None = None
    while True:
        page, after = emit(after=after, now=int(time.time()))
        counts.update(emitted for _, emitted, _ in page)
        reservations.update(reserved for _, _, reserved in page if reserved)
        lost += [order_id for order_id, emitted, _ in page if emitted == ORDER_LOST]
        if after is None:
            break
    start = datetime.fromtimestamp(since, UTC).isoformat()
    results = [*sorted(counts.items()), *sorted(reservations.items())]
    parts: list[Table | str] = [Table("payments, and what their orders reserve", ("result", "number"), results)]
    if lost:
        parts.append(f"the order is lost, restore it: {', '.join(lost[:_SHOWN_MAX])}")
    if is_dry_run:
        parts.append(f"dry run: --yes does it, and has Stripe's events read again since a day before {start}")
    document = {"since": start, "payments": dict(counts), "reservations": dict(reservations), "lost": lost}
    is_done = not is_dry_run and CHANGED not in {*counts, *reservations}
    return Report(document, parts, ExitStatus.OK if is_done else ExitStatus.FOUND)


def _reread_events(stack: Stack, since: int, *, is_dry_run: bool) -> None:
    """Let reconcile read Stripe's events again. Raises Problem, and ConcurrentRun."""
    if since < time.time() - _EVENTS_DAYS * 24 * 3600:
        raise Problem(f"Stripe lists the events of the last {_EVENTS_DAYS} days: --since is earlier")
    checkpoints = CheckpointStore(stack.dynamodb, stack.resource("PaymentsStateTable"), ReconcileCheckpoint)
    checkpoint = checkpoints.read() or ReconcileCheckpoint(since=since)
    begin = since - EVENT_LATE_SECONDS
    # A job that has not come so far continues where it is.
    if begin < checkpoint.since and not is_dry_run:
        checkpoints.write(replace(checkpoint, since=begin))


def emit_page(
    payments: PaymentStore,
    orders: OrderStore,
    *,
    after: Item | None,
    now: int,
    refunds: OrderRefundStore | None = None,
    is_dry_run: bool = False,
    parallel: Parallel = one_after_another,
) -> tuple[list[tuple[str, str, str | None]], dict[str, Any] | None]:
    """Compare one page of payments with their orders, emit what an order has not seen, and reserve what it lacks.

    Returns each order id with both results, and the key of the last row, None at the end. Raises ReadsThrottled, and
    botocore's errors.
    """
    start: Any = {"ExclusiveStartKey": to_item(after)} if after else {}
    page = payments.client.scan(TableName=payments.table, Limit=_PAGE, ConsistentRead=True, **start)
    rows = [payment_of(item) for item in page["Items"]]
    keys = [{"order_id": row.request.order_id} for row in rows]
    found = {item["order_id"]["S"]: from_item(item) for item in read_items(orders.client, orders.table, keys)}

    def visit(row: Payment) -> tuple[str, str, str | None]:
        order_id = row.request.order_id
        if (order := found.get(order_id)) is None:
            return order_id, ORDER_LOST, None
        reserved = _reserve(orders, refunds, order, is_dry_run=is_dry_run) if refunds else None
        return order_id, _emit(payments, row, order, now=now, is_dry_run=is_dry_run), reserved

    last = page.get("LastEvaluatedKey")
    return parallel(visit, rows), from_item(last) if last else None


def _emit(payments: PaymentStore, row: Payment, order: Mapping[str, Any], *, now: int, is_dry_run: bool) -> str:
    seen = order.get("payment_revision", 0)
    if row.state is PaymentState.PENDING or row.revision == seen:
        return SEEN
    # Above what the order has seen, also if another clock was ahead of this one.
    emitted_at = max(now, seen + 1)
    if not (is_dry_run or payments.write_if_unchanged(row, {"last_emitted_at": emitted_at}, now=emitted_at)):
        return CHANGED
    return EMITTED


def _reserve(
    orders: OrderStore, refunds: OrderRefundStore, order: Mapping[str, Any], *, is_dry_run: bool
) -> str | None:
    """Let the order have reserved the sum of its refunds that have not failed; None if it has."""
    # Read after the order: a refund that is requested or fails since changes what the write expects.
    of_order = refunds.of_order(order["order_id"])
    reserved: int = order.get("reserved_minor", 0)
    needed = sum(each.amount_minor for each in of_order if each.status is not RefundState.FAILED)
    if reserved == needed:
        return None
    if reserved > sum(each.amount_minor for each in of_order):
        return REFUND_LOST  # It may have been made: its money is not refundable again.
    is_done = is_dry_run or write_reserved(orders, order["order_id"], needed, instead_of=reserved)
    return RESERVED if is_done else CHANGED


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
