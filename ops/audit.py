"""Does the money at Stripe agree with the tables? Compares each order whose money moved in these days.

    audit yesterday
    audit --from 2026-11-01 --until 2026-11-30     both days included, in UTC

Orders are found on both sides: by Stripe's balance transactions (charges, refunds, disputes), and by the times in
Payments, OrderRefunds and Orders. Each is compared as both sides show it now, so it does not matter on which side of
midnight they have stored it. Transactions that name no order of this shop, such as payouts, are only counted.

The three tables are read as a whole, about one cent for a million rows each. A restricted Stripe key needs to read
balance transactions, charges, refunds, disputes and PaymentIntents.
"""

import re
from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import batched
from typing import Any

import stripe

from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.contract.money import as_money
from onecharge.contract.refunds import RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.payments.payment_intents import metadata_of
from onecharge.payments.refund_rules import StripeRefund, own
from onecharge.payments.refunds_at_stripe import RefundsAtStripe
from onecharge.runtime.dynamodb import expression_values, from_item, read_items
from ops.connection import Stack
from ops.errors import ExitStatus, Problem
from ops.facts import items_of
from ops.output import Report, Table

type Row = Mapping[str, Any]


def add_arguments(parser: ArgumentParser) -> None:
    about = "the first day: `yesterday`, or as 2026-11-01"
    parser.add_argument("day", nargs="?", type=day, metavar="DAY", help=about)
    parser.add_argument("--from", dest="since", type=day, metavar="DAY", help=about)
    parser.add_argument("--until", type=day, metavar="DAY", help="the last day (default: the first)")


def day(text: str) -> datetime:
    """The day's first moment. Raises ValueError."""
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    return datetime.strptime(yesterday if text == "yesterday" else text, "%Y-%m-%d").replace(tzinfo=UTC)


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    if (first := arguments.since or arguments.day) is None or (last := arguments.until or first) < first:
        raise Problem("which days? `yesterday`, or --from DAY, with a later --until DAY if there are several")
    return Audit(stack, first, last + timedelta(days=1)).report()


# ---------------------------------------------------------------- pure


@dataclass(frozen=True)
class Charge:
    """A charge that succeeded, as Stripe shows it now."""

    charge_id: str
    payment_intent_id: str | None
    order_id: str | None
    """The order of this shop that its metadata name."""
    amount_minor: int
    currency: str
    refunded_minor: int = 0
    is_disputed: bool = False


@dataclass(frozen=True)
class Difference:
    """Something that Stripe and the tables do not agree on."""

    order_id: str
    at_stripe: str | None
    ours: str | None
    why: str
    stripe_id: str | None = None


def compare(order_id: str, charges: Sequence[Charge], row: Row | None, order: Row | None) -> Iterator[Difference]:
    """How an order's charges, its payment's row and the order differ."""
    state, status = row["state"] if row else "no row", order["status"] if order else "lost"
    intent_id = row.get("payment_intent_id") if row else None
    ours = as_money(row["amount_minor"], row["currency"]) if row else None
    for charge in charges:
        at_stripe = as_money(charge.amount_minor, charge.currency)
        for why in _why_charge_differs(order_id, charge, row, order):
            yield Difference(order_id, at_stripe, ours, why, charge.charge_id)
    is_shown = any(each.payment_intent_id == intent_id for each in charges)
    if state == PaymentState.SUCCEEDED and not is_shown:
        yield Difference(order_id, None, ours, "the row is SUCCEEDED, and Stripe shows no such charge", intent_id)
    elif status == OrderStatus.PAID and not charges:
        yield Difference(order_id, None, ours, f"the order is PAID, and its payment {state}")


def _why_charge_differs(order_id: str, charge: Charge, row: Row | None, order: Row | None) -> list[str]:
    if row is None or row.get("payment_intent_id") != charge.payment_intent_id:
        payment = f"{row.get('payment_intent_id')}, {row['state']}" if row else "lost"
        return [f"the order's payment is {payment}: charged twice, or by hand?"]
    paid, refunded = (charge.amount_minor, charge.currency), row.get("amount_refunded_minor", 0)
    status = order["status"] if order else "lost"
    is_lost = row.get("dispute_status") == "lost"
    is_returned = status == OrderStatus.CANCELED and (is_lost or charge.refunded_minor >= charge.amount_minor)
    sums = [as_money(each, charge.currency) for each in (refunded, charge.refunded_minor)]
    checks = {
        "the charge's metadata do not name the order": charge.order_id != order_id,
        f"the row is {row['state']}": row["state"] != PaymentState.SUCCEEDED,
        "the row has another amount or currency": (row["amount_minor"], row["currency"]) != paid,
        f"the row has {sums[0]} refunded, Stripe {sums[1]}": refunded != charge.refunded_minor,
        "the row has no dispute": charge.is_disputed and not row.get("dispute_status"),
        f"the order is {status}": status != OrderStatus.PAID and not is_returned,
        "the order has another amount or currency": order and (order["amount_minor"], order["currency"]) != paid,
    }
    return [why for why, is_wrong in checks.items() if is_wrong]


def compare_refunds(order_id: str, items: Iterable[Row], made: Sequence[StripeRefund]) -> Iterator[Difference]:
    """How the order's own refunds differ; those that were made by hand are in the row's sum alone."""
    asked = {each["refund_id"]: each for each in items}
    for refund_id in sorted(asked.keys() | {each.refund_id for each in made if each.refund_id}):
        item, shown = asked.get(refund_id), own(refund_id, made)
        kept = [each for each in made if each.refund_id == refund_id and not each.has_failed]
        if why := "refunded twice, or by hand?" if len(kept) > 1 else _why_refund_differs(item, shown):
            at_stripe = as_money(shown.amount_minor, shown.currency) if shown else None
            ours = as_money(item["amount_minor"], item["currency"]) if item else None
            stripe_id = shown.stripe_refund_id if shown else None
            yield Difference(order_id, at_stripe, ours, f"{refund_id}: {why}", stripe_id)


def _why_refund_differs(item: Row | None, shown: StripeRefund | None) -> str | None:
    if item is None:
        return "OrderRefunds has no such refund"
    if shown is None:
        is_refused = item["status"] == RefundState.FAILED and not item.get("stripe_refund_id")
        return None if is_refused or item["status"] == RefundState.PENDING else "Stripe has no such refund"
    if (item["amount_minor"], item["currency"]) != (shown.amount_minor, shown.currency):
        return "another amount or currency"
    expected = RefundState.FAILED if shown.has_failed else RefundState.SUCCEEDED
    return None if item["status"] == expected else f"it is {item['status']}, at Stripe {shown.status}"


# ---------------------------------------------------------------- reading both sides


class Audit:
    """The comparison of all that moved from `since` until before `until`. Raises stripe.StripeError, ReadsThrottled."""

    def __init__(self, stack: Stack, since: datetime, until: datetime) -> None:
        self.stack, self.since, self.until = stack, since, until
        self.seconds = int(since.timestamp()), int(until.timestamp())
        self.charges = defaultdict[str, dict[str, Charge]](dict)
        self.charged, self.others = Counter[str](), 0

    def report(self) -> Report:
        created = {"gte": self.seconds[0], "lt": self.seconds[1]}
        given: Any = {"created": created, "limit": 100, "expand": ["data.source"]}
        transactions = self.stack.stripe.v1.balance_transactions.list(given).auto_paging_iter()
        for each in transactions:
            self._add(each)
        differences = [
            {**asdict(each), "command": f"{self.stack.command} explain {each.order_id}"}
            for each in self._differences({*self.charges, *self._orders_in_tables()})
        ]
        parts: list[Table | str] = [f"charges: {as_money(minor, each)}" for each, minor in self.charged.items()]
        parts.append(f"transactions that name no order of this shop: {self.others}")
        if self.until > datetime.now(UTC):
            parts.append("the last day is not over: what is in progress may be shown as a difference")
        names, title = "order_id at_stripe ours why stripe_id command", f"{len(differences)} differences"
        parts.append(Table.of(title, names, differences) if differences else "Stripe and the tables agree")
        document = {"charged_minor": self.charged, "differences": differences, "others": self.others}
        return Report(document, parts, ExitStatus.FOUND if differences else ExitStatus.OK)

    def _differences(self, order_ids: Iterable[str]) -> Iterator[Difference]:
        refunds = RefundsAtStripe(self.stack.stripe, self.stack.shop)
        for batch in batched(sorted(order_ids), 100, strict=False):
            rows, orders = self._read("PaymentsTable", batch), self._read("OrdersTable", batch)
            for order_id in batch:
                row = rows.get(order_id)
                charges = self._charges_of(order_id, row)
                yield from compare(order_id, charges, row, orders.get(order_id))
                items = [from_item(each) for each in items_of(self.stack, "OrderRefundsTable", order_id)]
                refunded = [each.payment_intent_id for each in charges if items or each.refunded_minor]
                made = [found for intent_id in refunded if intent_id for found in refunds.list(intent_id)]
                yield from compare_refunds(order_id, items, made)

    def _charges_of(self, order_id: str, row: Row | None) -> list[Charge]:
        """The order's charges of these days, and the one that its row names, on whichever day it was made."""
        charges = list(self.charges[order_id].values())
        intent_id = row.get("payment_intent_id") if row and row["state"] == PaymentState.SUCCEEDED else None
        if intent_id is None or any(each.payment_intent_id == intent_id for each in charges):
            return charges
        try:
            intent = self.stack.stripe.v1.payment_intents.retrieve(intent_id, {"expand": ["latest_charge"]})
        except stripe.InvalidRequestError as error:
            if error.http_status != 404:
                raise
            return charges
        return [*charges, self._read_charge(intent.latest_charge)] if intent.status == "succeeded" else charges

    def _add(self, transaction: Any) -> None:
        """Keep the charge that the transaction is about, if it names an order of this shop."""
        source: Any = getattr(transaction, "source", None)
        kind = getattr(source, "object", None)
        if kind in ("refund", "dispute"):
            source = self.stack.stripe.v1.charges.retrieve(source.charge)
        charge = self._read_charge(source) if kind in ("charge", "refund", "dispute") else None
        if charge is None or charge.order_id is None:
            self.others += 1
        else:
            self.charges[charge.order_id][charge.charge_id] = charge
            self.charged[charge.currency] += charge.amount_minor if kind == "charge" else 0

    def _read_charge(self, charge: Any) -> Charge:
        metadata, shop = metadata_of(charge), self.stack.shop
        order_id = metadata.get("order_id", "")
        is_ours = re.fullmatch(ORDER_ID_PATTERN, order_id) and metadata.get("shop", shop) == shop
        named = getattr(charge, "payment_intent", None), order_id if is_ours else None
        money = charge.amount, charge.currency.upper(), charge.amount_refunded
        return Charge(charge.id, *named, *money, charge.disputed)

    def _orders_in_tables(self) -> Iterator[str]:
        """The orders that were charged or paid, or whose refund was requested in these days, by our clocks."""
        days = self.since.isoformat(), self.until.isoformat()
        times = {"PaymentsTable": "finalized_at", "OrdersTable": "paid_at", "OrderRefundsTable": "requested_at"}
        for table, at in times.items():
            since, until = self.seconds if at == "finalized_at" else days
            pages = self.stack.dynamodb.get_paginator("scan").paginate(
                TableName=self.stack.resource(table),
                FilterExpression=f"{at} >= :since AND {at} < :until",
                ExpressionAttributeValues=expression_values(since=since, until=until),
            )
            yield from (item["order_id"]["S"] for page in pages for item in page["Items"])

    def _read(self, table: str, order_ids: Iterable[str]) -> dict[str, Row]:
        keys = [{"order_id": each} for each in order_ids]
        items = map(from_item, read_items(self.stack.dynamodb, self.stack.resource(table), keys))
        return {each["order_id"]: each for each in items}
