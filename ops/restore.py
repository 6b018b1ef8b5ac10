"""Put tables back from a backup. docs/runbook.md, "Restore a table", has the whole procedure: the event source mappings
are disabled until all of it is done.

copy    copy the rows that a table lacks from the table that DynamoDB restored. A row that exists is never touched: it
        was written since.
rows    then bring rows, orders and Stripe together, whichever of them the restore has set back: write payment rows that
        are missing or behind Stripe's list since TIME, send the outcomes of refunds again, and those of payments that
        their orders have not seen, count each order's pending refunds, and let reconcile read Stripe's events again.

Both can be repeated.
"""

import logging
import re
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from onecharge.contract.events import Event
from onecharge.contract.refunds import REFUND_ID_PATTERN
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.refund_store import OrderRefundStore, pending_minor
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStore
from onecharge.payments.charge_rows import PaymentStore, payment_of
from onecharge.payments.charge_rules import StripeIntent
from onecharge.payments.payment_intents import metadata_of
from onecharge.payments.refund import list_refunds, tell
from onecharge.payments.refund_rules import own
from onecharge.payments.rows import UNPAID, Payment
from onecharge.payments.stripe_events import ReconcileCheckpoint
from onecharge.payments.stripe_rate import StripeRate
from onecharge.payments.stripe_responses import Deferred
from onecharge.payments.sync import sync_row
from onecharge.payments.sync_rules import find_difference
from onecharge.payments.tools import Tools
from onecharge.runtime.aws import error_code
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.dynamodb import from_item, read_items, to_item
from onecharge.runtime.parallel import Parallel, Threads, one_after_another
from onecharge.runtime.topics import Topic
from ops.connection import Stack
from ops.errors import ExitStatus, Problem
from ops.output import Report, Table
from ops.release import MARGIN_SECONDS, Blocked, Release, changes_of, decide

TABLES = ("PaymentsTable", "OrdersTable", "OrderRefundsTable")
"""The tables that hold orders and payments."""
EVENT_LATE_SECONDS = 25 * 3600
"""How long after Stripe has created an event it may have been applied: reconcile is at most some hours behind without
an alarm, and clocks differ by less than an hour. What was applied after the restored point in time is lost."""
_PAGE = 100
"""Payments of one request: as many orders are read with one, too."""
_THREADS, _SHOWN_MAX = 16, 50

MISSING, COPIED, SAME, DIFFERENT, EXPIRED = "missing", "copied", "already there", "different: left as it is", "expired"
EMITTED, SEEN, ORDER_LOST = "emitted again", "its order has seen it, or it is PENDING", "its order is lost"
CHANGED, COUNTED = "it changed meanwhile: run this again", "pending refunds counted again"
UNREADABLE = "pending refunds not counted: the order cannot be read, `explain` it"

Item = Mapping[str, Any]
"""In DynamoDB's JSON."""


def add_arguments(parser: ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="subcommand", required=True)
    of_table = subcommands.add_parser("copy", help="copy the rows that a table lacks")
    of_table.add_argument("--table", required=True, choices=TABLES, help="the stack's table, by its logical id")
    of_table.add_argument("--from", dest="source", required=True, metavar="TABLE", help="name of the restored table")
    rows = subcommands.add_parser("rows", help="bring rows, orders and Stripe together again")
    at = "the restored time: 2026-11-21T12:00:00Z"
    rows.add_argument("--from", dest="since", required=True, metavar="TIME", type=_time, help=at)


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    if arguments.subcommand == "copy":
        return _copy_table(stack, arguments.table, arguments.source, is_dry_run=not arguments.yes)
    try:
        return _rows(stack, arguments.since, is_dry_run=not arguments.yes)
    except Deferred as stopped:
        raise Problem(f"it stopped at {stopped}: run it again", ExitStatus.FOUND) from stopped


def _time(text: str) -> int:
    """Epoch seconds of a time with its zone. Raises ValueError."""
    parsed = datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError("without a time zone")
    return int(parsed.timestamp())


# ---------------------------------------------------------------- copy


def _copy_table(stack: Stack, logical_id: str, source: str, *, is_dry_run: bool) -> Report:
    """Copy what the table lacks, and report the result of each row. Raises Problem if the tables do not match."""
    target = stack.resource(logical_id)
    if source == target:
        raise Problem(f"{source} is the stack's own table: --from names the restored one")
    table, restored = (stack.dynamodb.describe_table(TableName=name)["Table"] for name in (target, source))
    attributes, others = ({each["AttributeName"] for each in of["AttributeDefinitions"]} for of in (table, restored))
    if attributes != others:
        # Orders and Payments have the same key, and other indexes.
        raise Problem(f"{source} has other keys or indexes than {target}: was it restored from that table?")
    key = [each["AttributeName"] for each in table["KeySchema"]]
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


# ---------------------------------------------------------------- rows


def _rows(stack: Stack, since: int, *, is_dry_run: bool) -> Report:
    """Raises Problem, ConcurrentRun, and sync.OUTAGES."""
    release = Release.of(stack, is_dry_run=is_dry_run)
    mending = Mending(stack, _tools(stack), is_dry_run)
    shown = dict(release.look_since(since).by_order)
    # One that is older may have charged what lacks an id: that needs the complete look.
    rows = filter(None, map(release.payments.read, shown))
    shown |= release.look(filter(_lacks_id, rows)).by_order
    found = [each for order_id, intents in shown.items() for each in mending.row(order_id, intents)]
    found += mending.refunds(since - MARGIN_SECONDS)
    refunds = OrderRefundStore(stack.dynamodb, stack.resource("OrderRefundsTable"), release.orders.table)
    given: Any = {"tools": mending.tools, "refunds": refunds, "is_dry_run": is_dry_run}
    emit = partial(emit_page, release.payments, release.orders, **given)
    counts, left, after = Counter[str](), {each.order_id for each in found if each.is_left}, None
    while True:
        page, after = emit(after=after, now=int(time.time()), parallel=Threads(_THREADS))
        counts.update(result for _, *results in page for result in results if result)
        left |= {order_id for order_id, emitted, _ in page if emitted == ORDER_LOST}
        if after is None:
            break
    # What has changed of older PaymentIntents is in the events alone.
    checkpoints = CheckpointStore(stack.dynamodb, stack.resource("PaymentsStateTable"), ReconcileCheckpoint)
    checkpoint, events_since = checkpoints.read() or ReconcileCheckpoint(since=since), since - EVENT_LATE_SECONDS
    if events_since < checkpoint.since and not is_dry_run:
        checkpoints.write(replace(checkpoint, since=events_since))
    documents = [{"order_id": each.order_id, "what": each.what} for each in found]
    parts: list[Table | str] = [
        Table.of("Stripe, and the payments", "order_id what", documents),
        Table("payments, and their orders", ("result", "number"), sorted(counts.items())),
        f"a person has to see to: {', '.join(sorted(left)[:_SHOWN_MAX]) or 'none'}",
        *(["dry run: --yes does it, and lets reconcile read Stripe's events again"] if is_dry_run else []),
    ]
    status = ExitStatus.FOUND if is_dry_run or left or counts[CHANGED] else ExitStatus.OK
    return Report({"found": documents, "payments": dict(counts), "left": sorted(left)}, parts, status)


class Found(NamedTuple):
    """What was found for one order, and done, unless a person has to act."""

    order_id: str
    what: str
    is_left: bool = False


@dataclass(frozen=True)
class Mending:
    """Writes rows and sends refunds' outcomes, as Stripe shows them. Methods raise sync.OUTAGES."""

    stack: Stack
    tools: Tools
    is_dry_run: bool

    def row(self, order_id: str, intents: Sequence[StripeIntent]) -> Iterator[Found]:
        """Write what `sync` would; for a row without an id, what `release` would, but cancel nothing."""
        row = self.tools.payments.read(order_id)
        if row and _lacks_id(row):
            yield self._store(row, intents)
            return
        for intent in intents:
            yield from self._sync(order_id, row, self.tools.stripe.with_dispute(intent))

    def _store(self, row: Payment, intents: Sequence[StripeIntent]) -> Found:
        order_id, now = row.request.order_id, self.tools.now()
        try:
            too_many, store = decide(row, intents, shop=self.tools.shop)
        except Blocked as blocked:
            return Found(order_id, str(blocked), is_left=True)
        item = self.stack.item("OrdersTable", order_id=order_id)
        order = StoredOrder.from_item(item) if item else None
        if too_many or store is None or (store.is_open and order and order.status is OrderStatus.CANCELED):
            return Found(order_id, "a PaymentIntent too many is open: `release` it", is_left=True)
        changes = changes_of(self.tools.stripe.with_dispute(store), order, now)
        if not (self.is_dry_run or self.tools.payments.write_if_unchanged(row, changes, now=now)):
            return Found(order_id, CHANGED, is_left=True)
        return Found(order_id, f"its row names {store.payment_intent_id}, which is {store.status}")

    def _sync(self, order_id: str, row: Payment | None, intent: StripeIntent) -> Iterator[Found]:
        tools, seconds = self.tools, self.tools.requires_action_seconds
        found = find_difference(row, intent, shop=tools.shop, now=tools.now(), requires_action_seconds=seconds)
        if found is None or found.expires:  # reconcile cancels 3-D Secure that has expired.
            return
        is_written = bool(found.changes or found.recovers)
        if is_written and not self.is_dry_run:
            sync_row(order_id, intent.payment_intent_id, tools)
        yield Found(order_id, f"{intent.payment_intent_id}: {found.says}", is_left=not is_written)

    def refunds(self, since: int) -> Iterator[Found]:
        """Send the outcome of each of our refunds since then again: merged by rank, it harms nothing."""
        parameters: Any = {"created": {"gte": since}, "limit": _PAGE}
        ours = dict[tuple[str, str], str]()
        for made in self.stack.stripe.v1.refunds.list(parameters).auto_paging_iter():
            given = metadata_of(made)
            if given.get("shop") == self.tools.shop and re.fullmatch(REFUND_ID_PATTERN, given.get("refund_id", "")):
                ours[given.get("order_id", ""), given["refund_id"]] = str(made.payment_intent)
        return (self._tell(*names, payment_intent_id) for names, payment_intent_id in ours.items())

    def _tell(self, order_id: str, refund_id: str, payment_intent_id: str) -> Found:
        row, seen_at = self.tools.payments.read(order_id), self.tools.now()
        is_paid = row and row.payment_intent_id == payment_intent_id and row.state is PaymentState.SUCCEEDED
        # With --yes the row was written before.
        if not (is_paid or self.is_dry_run):
            return Found(order_id, f"{refund_id} is made, and its payment's row does not show it", is_left=True)
        if self.stack.item("OrderRefundsTable", order_id=order_id, refund_id=refund_id) is None:
            return Found(order_id, f"{refund_id} is made, and the order service lost it", is_left=True)
        made = None if self.is_dry_run else own(refund_id, list_refunds(payment_intent_id, self.tools))
        if row and made and (synced := sync_row(order_id, payment_intent_id, self.tools)):
            tell(synced, made, self.tools, seen_at=seen_at)
        return Found(order_id, f"the outcome of {refund_id} is sent again")


def _lacks_id(row: Payment) -> bool:
    return row.payment_intent_id is None and row.state in UNPAID


def _tools(stack: Stack) -> Tools:
    """The payment service's, without its alarms: the report names what was found."""
    silent: Any = logging.getLogger("ops.restore")
    silent.disabled = True
    topic = Topic(stack.client("sns"), stack.resource("PaymentEventsTopic"), silent, lambda _: None)

    def publish(event: Event) -> None:
        for failure in topic.publish([event]):
            raise Problem(f"SNS does not take the outcome of {event.subject}: {failure.code}", ExitStatus.FOUND)

    return Tools(
        payments=PaymentStore(stack.dynamodb, stack.resource("PaymentsTable")),
        stripe=stack.payment_intents,
        rate=StripeRate(1),
        clock=time.time,
        logger=silent,
        count=lambda _: None,
        lease_seconds=0,
        deadline=float("inf"),
        requires_action_seconds=int(stack.parameter("RequiresActionSeconds")),
        publish=publish,
    )


# ---------------------------------------------------------------- orders


def emit_page(
    payments: PaymentStore,
    orders: OrderStore,
    *,
    after: Item | None,
    now: int,
    tools: Tools | None = None,
    refunds: OrderRefundStore | None = None,
    is_dry_run: bool = False,
    parallel: Parallel = one_after_another,
) -> tuple[list[tuple[str, str, str | None]], dict[str, Any] | None]:
    """Compare one page of payments with their orders: emit what an order has not seen, and count its pending refunds.

    Returns each order id with both results, and the key of the last row, None at the end. Raises ReadsThrottled, and
    sync.OUTAGES.
    """
    start: Any = {"ExclusiveStartKey": to_item(after)} if after else {}
    page = payments.client.scan(TableName=payments.table, Limit=_PAGE, ConsistentRead=True, **start)
    rows = [payment_of(item) for item in page["Items"]]
    keys = [{"order_id": row.request.order_id} for row in rows]
    found = {item["order_id"]["S"]: item for item in read_items(orders.client, orders.table, keys)}

    def visit(row: Payment) -> tuple[str, str, str | None]:
        order_id = row.request.order_id
        if order_id not in found:
            return order_id, ORDER_LOST, None
        is_paid = row.state is PaymentState.SUCCEEDED
        counted = _count(refunds, found[order_id], is_dry_run=is_dry_run) if refunds and is_paid else None
        seen = from_item(found[order_id]).get("payment_revision", 0)
        if tools and row.payment_intent_id and row.revision < seen and not is_dry_run:
            # It was put back, and its total with it: emitted, that would replace the order's.
            row = sync_row(order_id, row.payment_intent_id, tools) or row
        return order_id, _emit(payments, row, seen, now=now, is_dry_run=is_dry_run), counted

    last = page.get("LastEvaluatedKey")
    return parallel(visit, rows), from_item(last) if last else None


def _emit(payments: PaymentStore, row: Payment, seen: int, *, now: int, is_dry_run: bool) -> str:
    if row.state is PaymentState.PENDING or row.revision == seen:
        return SEEN
    # Above what the order has seen, also if another clock was ahead of this one.
    emitted_at = max(now, seen + 1)
    if not (is_dry_run or payments.write_if_unchanged(row, {"last_emitted_at": emitted_at}, now=emitted_at)):
        return CHANGED
    return EMITTED


def _count(refunds: OrderRefundStore, item: Item, *, is_dry_run: bool) -> str | None:
    """Let the order's sum of pending refunds be what they sum up to; None if it is."""
    try:
        order = StoredOrder.from_item(item)
    except ValueError:
        return UNREADABLE
    found = refunds.of_order(order.order_id)
    if pending_minor(found) == order.pending_refunds_minor:
        return None
    return COUNTED if is_dry_run or refunds.count(order, found) else CHANGED
