"""Does the money at Stripe agree with the tables? Compares each order whose money moved in these days, in UTC.

Orders are found on both sides: by Stripe's balance transactions (charges, refunds, disputes), and by the times in
Payments, OrderRefunds and Orders. Each is compared as both sides show it now, so it does not matter on which side of
midnight they have stored it: one that is not simply charged, PAID and equal on both sides by what `explain` says of it.
Transactions that name no order of this shop, such as payouts, are left out.

The three tables are read as a whole, which costs about one cent for a million rows each. A restricted Stripe key needs
to read balance transactions, charges, refunds, disputes and PaymentIntents.
"""

import re
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.payments.payment_intents import metadata_of
from onecharge.runtime.dynamodb import expression_values
from onecharge.runtime.parallel import Threads
from ops.connection import Stack
from ops.errors import Problem
from ops.facts import Facts, gather
from ops.findings import Severity, find
from ops.output import Report

_THREADS = 8
"""With four requests an order, fewer than the 100 a second that Stripe allows (documentation, "Rate limits")."""
_DAY = timedelta(days=1)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("first", type=day, metavar="yesterday|YYYY-MM-DD", help="the first day")
    parser.add_argument("last", type=day, metavar="YYYY-MM-DD", nargs="?", help="the last day (default: the first)")


def day(text: str) -> datetime:
    """The day's first moment. Raises ValueError."""
    named = f"{datetime.now(UTC) - _DAY:%Y-%m-%d}" if text == "yesterday" else text
    return datetime.strptime(named, "%Y-%m-%d").replace(tzinfo=UTC)


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    last = arguments.last or arguments.first
    if last < arguments.first:
        raise Problem("the last day is before the first")
    return Audit(stack, arguments.first, last + _DAY).report()


class Audit:
    """The comparison of all that moved from `since` until before `until`. Raises stripe.StripeError."""

    def __init__(self, stack: Stack, since: datetime, until: datetime) -> None:
        self.stack, self.since, self.until = stack, since, until
        self.charges = defaultdict[str, dict[str, Any]](dict)
        """By order and id: those that succeeded and name an order of this shop, as Stripe shows them now."""

    def report(self) -> Report:
        created = {"gte": int(self.since.timestamp()), "lt": int(self.until.timestamp())}
        given: Any = {"created": created, "limit": 100, "expand": ["data.source"]}
        for each in self.stack.stripe.v1.balance_transactions.list(given).auto_paging_iter():
            self._add(each)
        order_ids = sorted({*self._orders_in_tables(), *self.charges})
        differences = list(chain(*Threads(_THREADS)(self._differences, order_ids)))
        is_over = self.until <= datetime.now(UTC)
        note = "" if is_over else ", which is not over: what is in progress may be shown as a difference"
        document = {
            "days": f"{self.since:%Y-%m-%d} to {self.until - _DAY:%Y-%m-%d}{note}",
            "orders": len(order_ids),
            "differences": differences,
        }
        return Report(document, is_wrong=bool(differences))

    def _add(self, transaction: Any) -> None:
        """Keep the charge that the transaction is about, if it names an order of this shop."""
        charge: Any = getattr(transaction, "source", None)
        kind = getattr(charge, "object", None)
        if kind in ("refund", "dispute"):
            charge = self.stack.stripe.v1.charges.retrieve(charge.charge)
        metadata, shop = metadata_of(charge), self.stack.shop
        order_id = metadata.get("order_id", "")
        is_ours = re.fullmatch(ORDER_ID_PATTERN, order_id) and metadata.get("shop", shop) == shop
        if kind in ("charge", "refund", "dispute") and is_ours:
            self.charges[order_id][charge.id] = charge

    def _orders_in_tables(self) -> Iterator[str]:
        """The orders that were charged or paid, or whose refund was requested in these days, by our clocks."""
        times = {"PaymentsTable": "finalized_at", "OrdersTable": "paid_at", "OrderRefundsTable": "requested_at"}
        for table, at in times.items():
            days = (self.since, self.until)
            since, until = (int(each.timestamp()) if at == "finalized_at" else each.isoformat() for each in days)
            within: Any = {"FilterExpression": f"{at} >= :since AND {at} < :until"}
            within["ExpressionAttributeValues"] = expression_values(since=since, until=until)
            yield from (item["order_id"]["S"] for item in self.stack.scan(self.stack.resource(table), **within))

    def _differences(self, order_id: str) -> list[dict[str, str]]:
        charges = list(self.charges[order_id].values())
        whys = [f"{each.id} was made by hand, and names this order" for each in charges if each.payment_intent is None]
        intent_ids = {str(each.payment_intent) for each in charges if each.payment_intent}
        try:
            if _is_plain(gather(self.stack, order_id, asks_stripe=False), charges):
                return []
            found = find(gather(self.stack, order_id, intent_ids=intent_ids))
            whys += [each.says for each in found if each.severity is not Severity.FINE]
        except ValueError as unreadable:  # The other orders are compared all the same.
            whys.append(f"an item of it cannot be read: {type(unreadable).__name__}")
        explain = f"{self.stack.command} explain {order_id}"
        return [{"order_id": order_id, "why": why, "next": explain} for why in whys]


def _is_plain(facts: Facts, charges: Sequence[Any]) -> bool:
    """Whether the order is charged once, PAID, and never refunded or disputed, with the same money on both sides."""
    row, order = facts.payment, facts.order
    if row is None or order is None or len(charges) != 1 or facts.refunds or charges[0].disputed:
        return False
    [charge] = charges
    charged = charge.amount, charge.currency.upper(), charge.amount_refunded, charge.payment_intent
    in_row = row.request.amount_minor, row.request.currency, row.amount_refunded_minor, row.payment_intent_id
    in_order = order.amount_minor, order.currency, 0, row.payment_intent_id
    is_paid = (row.state, order.status) == (PaymentState.SUCCEEDED, OrderStatus.PAID)
    return is_paid and charged == in_row == in_order
