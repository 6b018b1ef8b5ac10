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
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from onecharge.contract.events import ORDER_ID_PATTERN
from onecharge.contract.states import OrderStatus
from onecharge.payments.payment_intents import metadata_of
from onecharge.runtime.dynamodb import expression_values
from onecharge.runtime.parallel import Threads
from ops.connection import Stack
from ops.facts import Facts, gather
from ops.findings import FINE, find
from ops.output import Problem, Report

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
    since, until = arguments.first, (arguments.last or arguments.first) + _DAY
    if until <= since:
        raise Problem("the last day is before the first")
    charges = _charges(stack, since, until)
    order_ids = sorted({*_orders_in_tables(stack, since, until), *charges})
    compared = Threads(_THREADS)(lambda each: list(_why(stack, each, [*charges.get(each, {}).values()])), order_ids)
    found = [(order_id, why) for order_id, whys in zip(order_ids, compared, strict=True) for why in whys]
    explain = f"{stack.command} explain"
    note = ", which is not over: what is in progress may be shown as a difference" if until > datetime.now(UTC) else ""
    document = {
        "days": f"{since:%Y-%m-%d} to {until - _DAY:%Y-%m-%d}{note}",
        "orders": len(order_ids),
        "differences": [{"order_id": each, "why": why, "next": f"{explain} {each}"} for each, why in found],
    }
    return Report(document, is_wrong=bool(found))


def _charges(stack: Stack, since: datetime, until: datetime) -> Mapping[str, dict[str, Any]]:
    """By order and id, the charges that succeeded and name an order of this shop, as Stripe shows them now."""
    found = defaultdict[str, dict[str, Any]](dict)
    created = {"gte": int(since.timestamp()), "lt": int(until.timestamp())}
    given: Any = {"created": created, "limit": 100, "expand": ["data.source"]}
    for transaction in stack.stripe.v1.balance_transactions.list(given).auto_paging_iter():
        charge: Any = getattr(transaction, "source", None)
        kind = getattr(charge, "object", None)
        if kind in ("refund", "dispute"):
            charge = stack.stripe.v1.charges.retrieve(charge.charge)
        metadata, shop = metadata_of(charge), stack.value("ShopId")
        order_id = metadata.get("order_id", "")
        is_ours = re.fullmatch(ORDER_ID_PATTERN, order_id) and metadata.get("shop", shop) == shop
        if kind in ("charge", "refund", "dispute") and is_ours:
            found[order_id][charge.id] = charge
    return found


def _orders_in_tables(stack: Stack, *days: datetime) -> Iterator[str]:
    """The orders that were charged or paid, or whose refund was requested in these days, by our clocks."""
    times = {"PaymentsTable": "finalized_at", "OrdersTable": "paid_at", "OrderRefundsTable": "requested_at"}
    for table, at in times.items():
        since, until = (int(each.timestamp()) if at == "finalized_at" else each.isoformat() for each in days)
        within: Any = {"FilterExpression": f"{at} >= :since AND {at} < :until"}
        within["ExpressionAttributeValues"] = expression_values(since=since, until=until)
        yield from (item["order_id"]["S"] for item in stack.scan(stack.value(table), **within))


def _why(stack: Stack, order_id: str, charges: Sequence[Any]) -> Iterator[str]:
    """Why both sides differ."""
    yield from (f"{each.id} was made by hand, and names this order" for each in charges if each.payment_intent is None)
    intent_ids = {str(each.payment_intent) for each in charges if each.payment_intent}
    try:
        if not _is_plain(gather(stack, order_id, asks_stripe=False), charges):
            found = find(gather(stack, order_id, intent_ids=intent_ids))
            yield from (each.says for each in found if each.severity != FINE)
    except ValueError as unreadable:  # The other orders are compared all the same.
        yield f"an item of it cannot be read: {type(unreadable).__name__}"


def _is_plain(facts: Facts, charges: Sequence[Any]) -> bool:
    """Whether the order is charged once, PAID, and never refunded or disputed, with the same money on both sides."""
    row, order = facts.payment, facts.order
    if not (row and order and order.status is OrderStatus.PAID) or facts.refunds or len(charges) != 1:
        return False
    [charge] = charges
    charged = charge.amount, charge.currency.upper(), charge.payment_intent, charge.amount_refunded, charge.disputed
    is_as_in_row = charged == (*row.request.money, row.payment_intent_id, row.amount_refunded_minor, False)
    return is_as_in_row and not charge.amount_refunded and find(facts)[0].severity == FINE
