"""Restore what was lost. docs/runbook.md, "Restore a table", has the whole procedure.

rows      copy the rows that a table lacks from the table that DynamoDB restored. A row that exists is never
          touched: it was written since. Can be repeated, and continued after an interruption.
events    let reconcile read Stripe's events again, from the point in time that was restored: payments and refunds
          that the rows do not know of are written as Stripe shows them.
"""

import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any

from onecharge.runtime.checkpoints import CheckpointStore, ConcurrentRun
from ops.connection import Stack
from ops.errors import ExitStatus, Problem
from ops.output import Report, Table
from reconcile.run import ReconcileCheckpoint

TABLES = ("PaymentsTable", "RefundsTable", "OrdersTable", "OrderRefundsTable", "DueDocumentsTable")
"""The tables that hold orders and payments."""
_THREADS = 16
_SHOWN_MAX = 50
_EVENTS_DAYS = 30
"""How long Stripe lists an event (Stripe API reference, "Events")."""

MISSING, COPIED, SAME, DIFFERENT, EXPIRED = "missing", "copied", "already there", "different: left as it is", "expired"

Item = Mapping[str, Any]
"""In DynamoDB's JSON."""


def add_arguments(parser: ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="subcommand", required=True)
    rows = subcommands.add_parser("rows", help="copy the rows that a table lacks")
    rows.add_argument("--table", required=True, choices=TABLES, help="the stack's table, by its logical id")
    rows.add_argument("--from", dest="source", required=True, metavar="TABLE", help="name of the restored table")
    events = subcommands.add_parser("events", help="let reconcile read Stripe's events again")
    events.add_argument("--since", required=True, type=_time, help="the restored point in time: 2026-11-21T12:00:00Z")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    if arguments.subcommand == "events":
        return _reread_events(stack, arguments.since, is_dry_run=not arguments.yes, now=int(time.time()))
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


# ---------------------------------------------------------------- events


def _time(text: str) -> int:
    """Epoch seconds of a time with its zone. Raises ValueError."""
    parsed = datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError("without a time zone")
    return int(parsed.timestamp())


def _reread_events(stack: Stack, since: int, *, is_dry_run: bool, now: int) -> Report:
    if since < now - _EVENTS_DAYS * 24 * 3600:
        raise Problem(f"Stripe lists the events of the last {_EVENTS_DAYS} days: --since is earlier")
    checkpoints = CheckpointStore(stack.dynamodb, stack.resource("PaymentsStateTable"), ReconcileCheckpoint)
    checkpoint = checkpoints.read()
    if checkpoint is None:
        raise Problem("reconcile has not run yet: there is no checkpoint to set back")
    start = datetime.fromtimestamp(since, UTC).isoformat()
    document = {"since": start, "was": checkpoint.since, "is_dry_run": is_dry_run}
    if is_dry_run:
        line = f"dry run: --yes lets reconcile read Stripe's events again since {start}"
        return Report(document, [line], ExitStatus.FOUND)
    try:
        # A job that has not come so far continues where it is.
        checkpoints.write(checkpoint.reading_since(min(since, checkpoint.since)))
    except ConcurrentRun:
        raise Problem("reconcile runs at this moment: try again in some minutes") from None
    return Report(document, [f"reconcile reads Stripe's events again since {start}, from its next run on"])
