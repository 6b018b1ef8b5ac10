"""Put tables back from a backup: a part of docs/runbook.md, "Restore a table". Both actions can be repeated.

`copy` copies the rows that a table lacks from the table that DynamoDB restored; a row that exists was written since,
and stays. `rows` then brings rows, orders and Stripe together, whichever of them the restore has set back. It writes
payment rows that are missing or behind Stripe's list, sends the outcomes of refunds and payments again, and lets
reconcile read Stripe's events again.
"""

import logging
import re
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import batched, chain
from typing import Any, NamedTuple

from onecharge.contract.events import Event
from onecharge.contract.refund_events import REFUND_ID_PATTERN
from onecharge.contract.states import PaymentState
from onecharge.orders.refund_store import OrderRefundStore
from onecharge.payments.charge_rules import is_held
from onecharge.payments.payment_intents import metadata_of
from onecharge.payments.payments_table import UNPAID, Payment, WriteRefused, payment_of
from onecharge.payments.refund import tell
from onecharge.payments.refund_rules import own
from onecharge.payments.stripe_events import ReconcileCheckpoint
from onecharge.payments.stripe_rate import StripeRate
from onecharge.payments.stripe_responses import Deferred, StripeIntent
from onecharge.payments.sync import sync_row
from onecharge.payments.sync_rules import find_difference
from onecharge.payments.tools import Tools
from onecharge.runtime.checkpoints import CheckpointStore, ConcurrentRun
from onecharge.runtime.dynamodb import from_item, to_item
from onecharge.runtime.parallel import Parallel, Threads, one_after_another
from onecharge.runtime.topics import Topic
from ops.connection import Stack
from ops.output import FOUND, Problem, Report
from ops.release import MARGIN_SECONDS, Blocked, Release, creates_until, decide

TABLES = ("PaymentsTable", "OrdersTable", "OrderRefundsTable")
"""The tables that hold orders and payments."""
EVENT_LATE_SECONDS = 25 * 3600
"""How long after Stripe has created an event it may have been applied: reconcile is at most some hours behind without
an alarm, and clocks differ by less than an hour. What was applied after the restored point in time is lost."""
_PAGE, _THREADS = 100, 16
CHANGED = "it changed meanwhile: run this again"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("copy", "rows"), help="copy what a table lacks, or then mend the rows")
    parser.add_argument("--table", choices=TABLES, default=TABLES[0], help="of copy: the stack's, by its logical id")
    about = "of copy: the name of the restored table; of rows: the restored time, as 2026-11-21T12:00:00Z"
    parser.add_argument("--from", dest="since", required=True, metavar="TABLE|TIME", help=about)


def run(stack: Stack, arguments: Namespace) -> Report:
    if arguments.action == "copy":
        return _copy_table(stack, arguments.table, arguments.since, is_dry_run=not arguments.yes)
    try:
        since = int(datetime.strptime(arguments.since, "%Y-%m-%dT%H:%M:%S%z").timestamp())
    except ValueError:
        raise Problem(f"--from {arguments.since} is not a time with a zone, as 2026-11-21T12:00:00Z is") from None
    try:
        return _rows(stack, since, is_dry_run=not arguments.yes)
    except (Deferred, ConcurrentRun) as stopped:
        raise Problem(f"it stopped at {str(stopped) or "reconcile's checkpoint"}: run it again", FOUND) from stopped


# ---------------------------------------------------------------- copy


def _copy_table(stack: Stack, logical_id: str, source: str, *, is_dry_run: bool) -> Report:
    """Copy what the table lacks, and count what became of the rows. Raises Problem if the tables do not match."""
    target, describe = stack.value(logical_id), stack.dynamodb.describe_table
    ours, theirs = (describe(TableName=name)["Table"]["AttributeDefinitions"] for name in (target, source))
    by_name = partial(sorted, key=lambda each: each["AttributeName"])
    if by_name(ours) != by_name(theirs) or source == target:
        # Orders and Payments have the same key, and other indexes.
        raise Problem(f"{source} has other keys or indexes than {target}, or is it: name the one restored from it")
    counts, threads, copy = Counter[str](), Threads(_THREADS), partial(_copy, stack, target, is_dry_run)
    for items in batched(stack.scan(source), _PAGE, strict=False):
        counts.update(threads(copy, items))
    return Report({"table": logical_id, **counts}, is_dry_run=is_dry_run and bool(counts["missing"]))


def _copy(stack: Stack, target: str, is_dry_run: bool, item: Mapping[str, Any]) -> str:
    """Copy the item to the target if that lacks it; returns what was done."""
    if "expires_at" in item and int(item["expires_at"]["N"]) <= time.time():
        return "expired"  # DynamoDB would delete it again.
    if is_dry_run:
        key = {name: item[name] for name in ("order_id", "refund_id") if name in item}
        found = stack.dynamodb.get_item(TableName=target, Key=key, ConsistentRead=True)
        return "left_as_it_is" if "Item" in found else "missing"
    # A later release may have let the order's PaymentIntent be created, under keys of its own. A worker that believed
    # the earlier release would create a second one. Without `released_at` the row is held, and released after a look.
    item = {name: value for name, value in item.items() if name != "released_at"}
    lacks_it = "attribute_not_exists(order_id)"
    with suppress(stack.dynamodb.exceptions.ConditionalCheckFailedException):
        stack.dynamodb.put_item(TableName=target, Item=item, ConditionExpression=lacks_it)
        return "copied"
    return "left_as_it_is"


# ---------------------------------------------------------------- rows


class Found(NamedTuple):
    """What was found for one order, and done, unless a person has to act."""

    order_id: str
    what: str
    is_left: bool = False


def _rows(stack: Stack, since: int, *, is_dry_run: bool) -> Report:
    """Raises Problem, ConcurrentRun, and sync.OUTAGES."""
    mending = Mending(Release.of(stack, is_dry_run=is_dry_run), stack.refunds, _tools(stack))
    shown = dict(mending.release.look_since(since).by_order)
    # One that is older may have charged what lacks an id: that needs the complete look.
    rows = filter(None, map(mending.tools.payments.read, shown))
    complete = mending.release.look(filter(_lacks_id, rows)).by_order
    shown |= complete
    found = [each for name, intents in shown.items() for each in mending.row(name, intents, name in complete)]
    found += [*mending.refunds_since(since - MARGIN_SECONDS), *mending.orders(Threads(_THREADS))]
    # What has changed of older PaymentIntents is in the events alone.
    checkpoints = CheckpointStore(stack.dynamodb, stack.value("PaymentsStateTable"), ReconcileCheckpoint)
    checkpoint, events_since = checkpoints.read() or ReconcileCheckpoint(since=since), since - EVENT_LATE_SECONDS
    if events_since < checkpoint.since and not is_dry_run:
        checkpoints.write(replace(checkpoint, since=events_since))
    left = sorted({each.order_id for each in found if each.is_left})
    document = {"found": [each._asdict() for each in found], "a_person_has_to_see_to": left}
    return Report(document, is_wrong=bool(left), is_dry_run=is_dry_run)


def _lacks_id(row: Payment) -> bool:
    return row.payment_intent_id is None and row.state in UNPAID


@dataclass(frozen=True)
class Mending:
    """Writes rows and orders, and sends outcomes, as Stripe shows them. Methods raise sync.OUTAGES."""

    release: Release
    refunds: OrderRefundStore
    tools: Tools

    def row(self, order_id: str, intents: Sequence[StripeIntent], is_complete: bool = True) -> Iterator[Found]:
        """Write what `sync` would; for a row without an id, what `release` would, but cancel nothing."""
        row, tools = self.tools.payments.read(order_id), self.tools
        if row and _lacks_id(row):
            try:
                if not is_complete:
                    raise Blocked(CHANGED)
                found = decide(row, intents, shop=tools.shop)
                is_workers = found.store and (found.store.is_open or found.store.is_duplicate_of(row.request.money))
                if is_workers and tools.now() < creates_until(row):
                    return  # Its worker arrives at the one that its keys return, which may be another one.
                if found.cancel:
                    raise Blocked("a PaymentIntent too many is open: `release` it")
                yield Found(order_id, self.release.store(row, found, self.release.orders.find(order_id), tools.now()))
            except Blocked as blocked:
                yield Found(order_id, str(blocked), is_left=True)
            return
        for intent in map(tools.stripe.with_dispute_that_counts, intents):
            seconds = tools.requires_action_seconds
            differs = find_difference(row, intent, shop=tools.shop, now=tools.now(), requires_action_seconds=seconds)
            if differs is None or differs.expires:  # reconcile cancels 3-D Secure that has expired.
                continue
            is_written = bool(differs.changes)
            if is_written and not self.release.is_dry_run:
                sync_row(order_id, intent.payment_intent_id, tools)
            yield Found(order_id, f"{intent.payment_intent_id}: {differs.says}", is_left=not is_written)

    def refunds_since(self, since: int) -> Iterator[Found]:
        """Send the outcome of each of our refunds since then again: merged by rank, it harms nothing."""
        ours = dict[tuple[str, str], str]()
        listed: Any = {"created": {"gte": since}, "limit": _PAGE}
        for made in self.release.stripe.client.v1.refunds.list(listed).auto_paging_iter():
            given = metadata_of(made)
            if given.get("shop") == self.tools.shop and re.fullmatch(REFUND_ID_PATTERN, given.get("refund_id", "")):
                ours[given.get("order_id", ""), given["refund_id"]] = str(made.payment_intent)
        return (self._tell(*names, payment_intent_id) for names, payment_intent_id in ours.items())

    def _tell(self, order_id: str, refund_id: str, payment_intent_id: str) -> Found:
        row, tools = self.tools.payments.read(order_id), self.tools
        is_paid = row and row.payment_intent_id == payment_intent_id and row.state is PaymentState.SUCCEEDED
        if not (is_paid or self.release.is_dry_run):  # With --yes the row was written before.
            return Found(order_id, f"{refund_id} is made, and its payment's row does not show it", is_left=True)
        if self._item(self.refunds.table, order_id=order_id, refund_id=refund_id) is None:
            return Found(order_id, f"{refund_id} is made, and the order service lost it", is_left=True)
        made = None if self.release.is_dry_run else own(refund_id, tools.stripe.list_refunds(payment_intent_id))
        if row and made and (synced := sync_row(order_id, payment_intent_id, tools)):
            tell(synced, made, tools)
        return Found(order_id, f"the outcome of {refund_id} is sent again")

    def orders(self, parallel: Parallel = one_after_another) -> Iterator[Found]:
        """Emit what an order has not seen of its payment."""
        client: Any = self.tools.payments.client  # boto3's types lack Limit for paginate.
        given = {"TableName": self.tools.payments.table, "Limit": _PAGE, "ConsistentRead": True}
        for page in client.get_paginator("scan").paginate(**given):
            yield from chain(*parallel(self._order, map(payment_of, page["Items"])))

    def _order(self, row: Payment) -> list[Found]:
        order_id, tools, found = row.request.order_id, self.tools, list[str]()
        if (item := self._item(self.release.orders.table, order_id=order_id)) is None:
            return [Found(order_id, "its order is lost", is_left=True)]
        seen = from_item(item).get("payment_revision", 0)
        if row.payment_intent_id and row.revision < seen and not self.release.is_dry_run:
            # It was put back, and its total with it: emitted, that would replace the order's.
            row = sync_row(order_id, row.payment_intent_id, tools) or row
            found += ["it is held"] * is_held(row, tools.now())
        if row.state is not PaymentState.PENDING and row.revision != seen:
            # Above what the order has seen, also if another clock was ahead of this one.
            at = max(tools.now(), seen + 1)
            try:
                if not self.release.is_dry_run:
                    tools.payments.write_if_unchanged(row, {"last_emitted_at": at}, now=at)
                found.append("its payment is emitted again")
            except WriteRefused:
                found.append(CHANGED)
        return [Found(order_id, each, each == CHANGED) for each in found]

    def _item(self, table: str, **key: str) -> Mapping[str, Any] | None:
        """As it is: whoever wrote it, it may break the schema."""
        return self.refunds.client.get_item(TableName=table, Key=to_item(key), ConsistentRead=True).get("Item")


def _tools(stack: Stack) -> Tools:
    """The payment service's, without its alarms: the report names what was found."""
    silent: Any = logging.Logger("ops.restore", logging.CRITICAL + 1)
    topic = Topic(stack.client("sns"), stack.value("PaymentEventsTopic"), silent, lambda _: None)

    def publish(event: Event) -> None:
        for failure in topic.publish([event]):
            raise Deferred(f"the outcome of {event.subject}, which SNS does not take ({failure.code})")

    return Tools(
        payments=stack.payments,
        stripe=stack.payment_intents,
        rate=StripeRate(1),
        clock=time.time,
        logger=silent,
        count=lambda _: None,
        lease_seconds=0,
        deadline=float("inf"),
        requires_action_seconds=int(stack.value("RequiresActionSeconds")),
        publish=publish,
    )
