"""Stripe's balance transactions against our rows, to the cent, by currency.

    audit --from 2026-11-20                        one day, in UTC
    audit --from 2026-11-01 --to 2026-11-30        both days included

A movement is matched if both sides have it with the same amount, on whichever day ours was finalized. A row is found by
the order that the movement names, never by its time: a charge a second before midnight may be finalized a second after
it. What our rows alone have within the time is looked up at Stripe, where it may belong to another day; then it is
counted apart. So a movement is a difference only if the other side does not have it at all. Movements of the account
that are not ours, such as fees, payouts and other charges, are counted apart, too.

Each payment that succeeded within the time is compared with its order, which has to be PAID, and each order that was
paid within it with its payment.

It reads Payments and Orders as a whole (about one cent for a million rows each), and one page of Stripe's for each
hundred transactions. It keeps the ids of what was seen, the totals, and the first differences. A restricted Stripe key
needs to read balance transactions, charges, refunds, disputes and PaymentIntents.
"""

from argparse import ArgumentParser, Namespace
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import batched
from typing import Any

from rich.console import Console
from rich.progress import track

from onecharge.contract.money import as_money
from onecharge.contract.refunds import RefundState
from onecharge.contract.states import OrderStatus, PaymentState
from ops.books import Booked, Kind, Orders, Row, Rows, StripeBooks
from ops.connection import Stack
from ops.errors import ExitStatus, Problem
from ops.output import Report, Table

_BATCH = 100
"""Items of one request."""

DIFFERENCES_MAX = 1_000
"""How many differences are kept to be listed; all are counted, and all count in the totals."""


class Where(StrEnum):
    """On which side a movement is."""

    STRIPE_ONLY = "at Stripe only"
    OURS_ONLY = "ours only"
    DIFFERS = "amounts differ"


@dataclass(frozen=True)
class Difference:
    """A movement that the two sides do not agree on."""

    where: Where
    kind: Kind
    currency: str
    at_stripe_minor: int
    """0 if Stripe has none."""
    ours_minor: int
    """0 if we have none."""
    order_id: str | None
    stripe_id: str | None
    why: str

    @property
    def difference_minor(self) -> int:
        """What Stripe has more than we have."""
        return self.at_stripe_minor - self.ours_minor


@dataclass
class Total:
    """Of one kind of movement in one currency. Amounts in minor units, with their signs."""

    matched: int = 0
    matched_minor: int = 0
    different: int = 0
    at_stripe_minor: int = 0
    ours_minor: int = 0
    elsewhen: int = 0
    """Rows that were finalized within the time, and that Stripe has booked at another; on neither side of the sum."""

    @property
    def difference_minor(self) -> int:
        return self.at_stripe_minor - self.ours_minor


@dataclass
class Audited:
    """What an audit has found."""

    totals: defaultdict[tuple[Kind, str], Total] = field(default_factory=lambda: defaultdict(Total))
    differences: list[Difference] = field(default_factory=list)
    different: int = 0
    """How many there are, listed or not."""
    foreign: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Movements that are not ours, by type and currency: their number."""
    foreign_minor: Counter[tuple[str, str]] = field(default_factory=Counter)
    transactions: int = 0

    def match(self, booked: Booked) -> None:
        total = self.totals[booked.kind, booked.currency]
        total.at_stripe_minor += booked.amount_minor
        total.ours_minor += booked.amount_minor
        total.matched += 1
        total.matched_minor += booked.amount_minor

    def differ(self, difference: Difference) -> None:
        total = self.totals[difference.kind, difference.currency]
        total.at_stripe_minor += difference.at_stripe_minor
        total.ours_minor += difference.ours_minor
        total.different += 1
        self.different += 1
        if len(self.differences) < DIFFERENCES_MAX:
            self.differences.append(difference)

    def pass_by(self, booked: Booked) -> None:
        """It is not ours."""
        self.foreign[booked.stripe_type, booked.currency] += 1
        self.foreign_minor[booked.stripe_type, booked.currency] += booked.amount_minor


# ---------------------------------------------------------------- the command


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--from", dest="since", type=day, required=True, metavar="DAY", help="first day, UTC")
    parser.add_argument("--to", dest="until", type=day, metavar="DAY", help="last day, UTC (default: the first)")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    since: datetime = arguments.since
    until = (arguments.until or since) + timedelta(days=1)
    if until <= since:
        raise Problem("--to is before --from")
    payments = Rows(stack.dynamodb, stack.resource("PaymentsTable"))
    refunds = Rows(stack.dynamodb, stack.resource("RefundsTable"))
    is_over = until <= datetime.now(UTC)
    books = StripeBooks(stack.stripe, stack.shop)
    found = compare(books, payments, refunds, int(since.timestamp()), int(until.timestamp()))
    orders = compare_orders(payments, Orders(stack.dynamodb, stack.resource("OrdersTable")), since, until)
    notes = [] if is_over else ["the time is not over yet: what is in progress may be shown as a difference"]
    return _report(found, orders, since, until, notes)


def day(text: str) -> datetime:
    """The day's first moment. Raises ValueError."""
    return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)


# ---------------------------------------------------------------- comparing


def compare(books: StripeBooks, payments: Rows, refunds: Rows, since: int, until: int) -> Audited:
    """Compare all that was booked from `since` until before `until`, in epoch seconds. It only reads.

    Raises:
        stripe.StripeError: Stripe does not answer, or refuses.
    """
    found, seen = Audited(), set[str]()
    console, pages = Console(stderr=True), books.pages(since, until)
    title, hidden = "Stripe's balance transactions", not console.is_terminal
    for page in track(pages, title, console=console, transient=True, disable=hidden):
        found.transactions += len(page)
        _compare_page(books, payments, refunds, page, found, seen)
    for row in payments.succeeded(since, until):
        if row.get("payment_intent_id") not in seen:
            _charge_is_ours_only(books, row, since, until, found)
    for row in refunds.succeeded(since, until):
        if row.get("stripe_refund_id") not in seen:
            _refund_is_ours_only(books, row, since, until, found)
    return found


def compare_orders(payments: Rows, orders: Orders, since: datetime, until: datetime) -> list[dict[str, Any]]:
    """The orders that do not have what their payment says. It only reads."""
    differing = []
    for rows in batched(payments.succeeded(int(since.timestamp()), int(until.timestamp())), _BATCH, strict=False):
        found = {each["order_id"]: each for each in orders.of([{"order_id": row["order_id"]} for row in rows])}
        differing += [(row["order_id"], why) for row in rows if (why := _why_unpaid(row, found.get(row["order_id"])))]
    for paid in batched(orders.paid(since, until), _BATCH, strict=False):
        known = {each["order_id"]: each["state"] for each in payments.of([{"order_id": each} for each in paid])}
        unknown = [(each, known.get(each, "lost")) for each in paid if known.get(each) != PaymentState.SUCCEEDED]
        differing += [(order_id, f"the order is PAID, its payment {state}") for order_id, state in unknown]
    return [{"order_id": each, "why": why, "command": f"python -m ops explain {each}"} for each, why in differing]


def _why_unpaid(row: Row, order: Row | None) -> str | None:
    if order is None:
        return "the payment succeeded, and the order is lost"
    if order["status"] == OrderStatus.CANCELED and row.get("amount_refunded_minor", 0) >= row["amount_minor"]:
        return None  # It was of other money, and is given back.
    if (order["amount_minor"], order["currency"]) != (row["amount_minor"], row["currency"]):
        return "the payment succeeded with other money than the order's"
    return None if order["status"] == OrderStatus.PAID else f"the payment succeeded, and the order is {order['status']}"


# ---------------------------------------------------------------- Stripe's movements


def _compare_page(
    books: StripeBooks, payments: Rows, refunds: Rows, page: Iterable[Booked], found: Audited, seen: set[str]
) -> None:
    ours: list[Booked] = []
    for booked in page:
        order_id = _order_of(books, booked)
        if order_id is None:
            found.pass_by(booked)
        else:
            ours.append(replace(booked, order_id=order_id))
    order_ids = sorted({str(each.order_id) for each in ours})
    rows = {row["order_id"]: row for row in payments.of([{"order_id": each} for each in order_ids])}
    refund_keys = {(str(each.order_id), each.refund_id) for each in ours if each.refund_id}
    wanted = [{"order_id": order_id, "refund_id": refund_id} for order_id, refund_id in sorted(refund_keys)]
    refund_rows = {row["refund_id"]: row for row in refunds.of(wanted)}
    for booked in ours:
        seen.add(str(booked.payment_intent_id if booked.kind is Kind.CHARGE else booked.source_id))
        row = rows.get(booked.order_id)
        match booked.kind:
            case Kind.CHARGE:
                difference = _compare_charge(booked, row)
            case Kind.REFUND | Kind.REFUND_FAILURE if booked.refund_id is not None:
                difference = _compare_refund(booked, refund_rows.get(booked.refund_id))
            case Kind.REFUND | Kind.REFUND_FAILURE:
                refunded = books.amount_refunded(str(booked.payment_intent_id))
                difference = _compare_refund_by_hand(booked, row, refunded)
            case Kind.DISPUTE | Kind.DISPUTE_REVERSAL:
                difference = _compare_dispute(booked, row)
            case _:
                difference = _stripe_only(booked, "no rule of ours takes a charge back")
        if difference is None:
            found.match(booked)
        else:
            found.differ(difference)


def _order_of(books: StripeBooks, booked: Booked) -> str | None:
    """The order of a movement; None if it is not ours."""
    if booked.kind is Kind.OTHER or booked.order_id is not None:
        return booked.order_id
    if booked.kind is Kind.CHARGE or booked.payment_intent_id is None:
        return None  # A Charge has the metadata that its PaymentIntent had.
    return books.order_of(booked.payment_intent_id)


def _compare_charge(booked: Booked, row: Row | None) -> Difference | None:
    """A charge against its order's row; None if they are the same."""
    if row is None:
        return _stripe_only(booked, "the order has no payment row: lost, or charged by hand")
    if row.get("payment_intent_id") != booked.payment_intent_id:
        payment = f"{row.get('payment_intent_id')}, {row['state']}"
        return _stripe_only(booked, f"the order's payment is {payment}: charged twice, or by hand")
    if (row["amount_minor"], row["currency"]) != (booked.amount_minor, booked.currency):
        return _differs(booked, row["amount_minor"], row)
    return None if row["state"] == PaymentState.SUCCEEDED else _stripe_only(booked, f"the row is {row['state']}")


def _compare_refund(booked: Booked, row: Row | None) -> Difference | None:
    """A refund that was requested here, or its failure, against its row; None if they are the same."""
    if row is None:
        return _stripe_only(booked, "the refund has no row: lost?")
    ours = -row["amount_minor"] if booked.kind is Kind.REFUND else row["amount_minor"]
    if (ours, row["currency"]) != (booked.amount_minor, booked.currency):
        return _differs(booked, ours, row)
    if row.get("stripe_refund_id") not in (None, booked.source_id):
        return _stripe_only(booked, f"the row's refund is {row['stripe_refund_id']}: refunded twice, or by hand")
    is_failed = booked.source_status in ("failed", "canceled")
    if row["state"] != (RefundState.FAILED if is_failed else RefundState.SUCCEEDED):
        return _stripe_only(booked, f"the row is {row['state']}, and Stripe shows the refund as {booked.source_status}")
    return None


def _compare_refund_by_hand(booked: Booked, row: Row | None, refunded_minor: int) -> Difference | None:
    """A refund that was not requested here, by the total that the row knows, and Stripe's total."""
    if row is None:
        return _stripe_only(booked, "made by hand; the order has no payment row")
    known = row.get("amount_refunded_minor", 0)
    if known != refunded_minor:
        ours, shown = (as_money(amount_minor, row["currency"]) for amount_minor in (known, refunded_minor))
        return _stripe_only(booked, f"made by hand; the row knows {ours} as refunded, Stripe shows {shown}")
    return None


def _compare_dispute(booked: Booked, row: Row | None) -> Difference | None:
    """A dispute, or its reversal, against what the row knows of disputes."""
    if row is None:
        return _stripe_only(booked, "the order has no payment row")
    return None if row.get("dispute_status") else _stripe_only(booked, "the row knows of no dispute")


def _stripe_only(booked: Booked, why: str) -> Difference:
    on_stripes_side = booked.kind, booked.currency, booked.amount_minor
    return Difference(Where.STRIPE_ONLY, *on_stripes_side, 0, booked.order_id, booked.source_id, why)


def _differs(booked: Booked, ours_minor: int, row: Row) -> Difference:
    """In another currency, our amount does not count: `why` has it."""
    why = f"the row has {as_money(row['amount_minor'], row['currency'])}, and is {row['state']}"
    counted = ours_minor if row["currency"] == booked.currency else 0
    return replace(_stripe_only(booked, why), where=Where.DIFFERS, ours_minor=counted)


# ---------------------------------------------------------------- what only our rows have


def _charge_is_ours_only(books: StripeBooks, row: Row, since: int, until: int, found: Audited) -> None:
    """A row whose charge was not among Stripe's transactions of the time."""
    intent_id, amount, currency = row.get("payment_intent_id"), row["amount_minor"], row["currency"]
    booked_at, charged, charged_in = (books.charged(intent_id) if intent_id else None) or (None, 0, "")
    if intent_id is None:
        why = "the row is SUCCEEDED without a PaymentIntent"
    elif booked_at is None:
        why = "the row is SUCCEEDED, and Stripe shows no such charge"
    elif since <= booked_at < until:
        why = "its charge does not name the order in its metadata"
    elif (charged, charged_in) == (amount, currency):
        found.totals[Kind.CHARGE, currency].elsewhen += 1
        return
    else:
        why = f"charged at another time, with {as_money(charged, charged_in)}"
    found.differ(Difference(Where.OURS_ONLY, Kind.CHARGE, currency, 0, amount, row["order_id"], intent_id, why))


def _refund_is_ours_only(books: StripeBooks, row: Row, since: int, until: int, found: Audited) -> None:
    """A row whose refund was not among Stripe's transactions of the time."""
    refund_id, currency = row.get("stripe_refund_id"), row["currency"]
    booked_at = books.refund_booked_at(refund_id) if refund_id else None
    if booked_at is not None and not since <= booked_at < until:
        found.totals[Kind.REFUND, currency].elsewhen += 1
        return
    why = "the row is SUCCEEDED, and Stripe has no such refund"
    if booked_at is not None:
        why = "Stripe's refund names no refund id of ours"
    amount = -row["amount_minor"]
    found.differ(Difference(Where.OURS_ONLY, Kind.REFUND, currency, 0, amount, row["order_id"], refund_id, why))


# ---------------------------------------------------------------- the report


def _report(found: Audited, orders: list[dict[str, Any]], since: datetime, until: datetime, notes: list[str]) -> Report:
    totals = [
        {"what": kind, "currency": currency, **asdict(total), "difference_minor": total.difference_minor}
        for (kind, currency), total in sorted(found.totals.items())
    ]
    differences = [
        asdict(each)
        | {"difference_minor": each.difference_minor}
        | {"command": f"python -m ops explain {each.order_id}" if each.order_id else None}
        for each in found.differences
    ]
    not_ours = [
        {"type": type_, "currency": currency, "number": number, "sum_minor": found.foreign_minor[type_, currency]}
        for (type_, currency), number in sorted(found.foreign.items())
    ]
    elsewhen = sum(total.elsewhen for total in found.totals.values())
    if elsewhen:
        notes = [f"{elsewhen} of our rows were finalized within this time, and are booked at Stripe at another", *notes]
    last = until - timedelta(days=1)
    days = f"{since:%Y-%m-%d}" + (f" to {last:%Y-%m-%d}" if last > since else "")
    title = f"{days}, UTC: {found.transactions:,} transactions of Stripe"
    names = "what matched different at_stripe ours difference"
    parts: list[Table | str] = [Table.of(title, names, _with_money(totals))]
    if differences:
        names = "where kind order_id stripe_id at_stripe ours why command"
        more = f", the first {len(differences):,} of {found.different:,}" if found.different > len(differences) else ""
        parts.append(Table.of(f"differences{more}", names, _with_money(differences)))
    if not_ours:
        parts.append(Table.of("not ours, and not a difference", "type currency number sum", _with_money(not_ours)))
    if orders:
        title = f"orders that differ from their payments: {len(orders)}"
        parts.append(Table.of(title, "order_id why command", orders[:DIFFERENCES_MAX]))
    parts += [*notes, f"{found.different} differences" if found.different else "balanced to the cent"]
    document = {
        "from": since.isoformat(),
        "until": until.isoformat(),
        "transactions": found.transactions,
        "different": found.different,
        "totals": totals,
        "differences": differences,
        "orders": orders,
        "not_ours": not_ours,
        "notes": notes,
    }
    return Report(document, parts, ExitStatus.FOUND if found.different or orders else ExitStatus.OK)


def _with_money(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows as a person reads them: `ours` is `ours_minor` as money."""
    names = ("at_stripe", "ours", "difference", "sum")
    return [
        row | {name: as_money(row[f"{name}_minor"], row["currency"]) for name in names if f"{name}_minor" in row}
        for row in rows
    ]
