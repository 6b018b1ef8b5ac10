"""`restore`: restores what was lost. docs/runbook.md, "Restore a table", has the whole procedure.

rows      copy the rows that a table lacks from the table that DynamoDB restored. A row that exists is never
          touched: whoever wrote it knew more. Can be repeated, and continued after an interruption.
events    let reconcile read Stripe's events again, from the point in time that was restored: payments and refunds
          that the rows do not know of are written as Stripe shows them.
"""

import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onecharge.runtime.checkpoints import CheckpointStore, ConcurrentRun
from ops.connection import Stack
from ops.errors import ExitStatus, Problem
from ops.output import Report, Table
from reconcile.checkpoint import ReconcileCheckpoint

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

HELP = "copy the rows that a table has lost from a restored table; read Stripe's events again"

TABLES = (
    "PaymentsTable",
    "RefundsTable",
    "OrdersTable",
    "OrderRefundsTable",
    "DueDocumentsTable",
)
"""What holds orders and payments."""
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
    if arguments.subcommand == "events":
        return _reread_events(stack, arguments.since, is_dry_run=not arguments.yes, now=int(time.time()))
    copy = Copy(stack.dynamodb, arguments.source, stack.resource(arguments.table), is_dry_run=not arguments.yes)
    return copy.report(arguments.table)


# ---------------------------------------------------------------- rows


@dataclass(frozen=True)
class Copy:
    """From one table to another of the same key, whatever the target lacks."""

    dynamodb: "DynamoDBClient"
    source: str
    target: str
    is_dry_run: bool

    def report(self, logical_id: str) -> Report:
        """Copy, and report the result of each row. Raises Problem if the tables do not match."""
        self._check()
        counts = Counter[str]()
        different: list[str] = []
        with ThreadPoolExecutor(_THREADS) as threads:
            for page in self._pages():
                for item, result in zip(page, threads.map(self._copy, page), strict=True):
                    counts[result] += 1
                    if result == DIFFERENT:
                        different.append(" ".join(next(iter(item[name].values())) for name in self._key_names))
        shown = different[:_SHOWN_MAX]
        document = {"table": logical_id, "from": self.source, "rows": dict(counts), "different": different}
        parts: list[Table | str] = [Table(f"{logical_id} from {self.source}", ("row", "rows"), sorted(counts.items()))]
        if shown:
            parts.append(Table("different: the table's own row is kept", ("key",), [[each] for each in shown]))
        if counts[MISSING]:
            parts.append("dry run: --yes copies the missing rows")
        return Report(document, parts, ExitStatus.FOUND if counts[MISSING] else ExitStatus.OK)

    def _check(self) -> None:
        if self.source == self.target:
            raise Problem(f"{self.source} is the stack's own table: --from names the restored one")
        if self._key_schema(self.source) != self._key_schema(self.target):
            raise Problem(f"{self.source} has another key than {self.target}: was it restored from that table?")

    def _key_schema(self, table: str) -> list[tuple[str, str]]:
        schema = self.dynamodb.describe_table(TableName=table)["Table"]["KeySchema"]
        return [(each["AttributeName"], each["KeyType"]) for each in schema]

    @cached_property
    def _key_names(self) -> list[str]:
        return [name for name, _ in self._key_schema(self.target)]

    def _pages(self) -> Iterator[list[Item]]:
        for page in self.dynamodb.get_paginator("scan").paginate(TableName=self.source, ConsistentRead=True):
            yield list(page["Items"])

    def _copy(self, item: Item) -> str:
        if "expires_at" in item and int(item["expires_at"]["N"]) <= time.time():
            return EXPIRED
        if self.is_dry_run:
            key = {name: item[name] for name in self._key_names}
            existing = self.dynamodb.get_item(TableName=self.target, Key=key, ConsistentRead=True).get("Item")
            return MISSING if existing is None else _compared(existing, item)
        try:
            self.dynamodb.put_item(
                TableName=self.target,
                Item=dict(item),
                ConditionExpression="attribute_not_exists(#key)",
                ExpressionAttributeNames={"#key": self._key_names[0]},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.dynamodb.exceptions.ConditionalCheckFailedException as refused:
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
        # If it has not come so far, it continues where it is; what webhooks have processed since is handled again, too.
        checkpoints.write(checkpoint.again_since(min(since, checkpoint.since), now=now))
    except ConcurrentRun:
        raise Problem("reconcile runs at this moment: try again in some minutes") from None
    return Report(document, [f"reconcile reads Stripe's events again since {start}, from its next run on"])
