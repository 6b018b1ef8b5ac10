"""Stripe's balance transactions against our rows, to the cent, by currency.

    audit --from 2026-11-20                        one day, in UTC
    audit --from 2026-11-01 --to 2026-11-30        both days included

A movement is matched if both sides have it with the same amount, on whichever day ours was finalized. Rows that Stripe
has booked on another day are counted apart, and so are movements of the account that are not ours: fees, payouts, other
charges. It reads the Payments table as a whole (about one cent for a million rows), and one page of Stripe's for each
hundred transactions. A restricted Stripe key needs to read balance transactions, charges, refunds, disputes and
PaymentIntents.
"""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from ops.auditor import Audited, Difference, compare
from ops.books import Rows, StripeBooks
from ops.connection import Stack
from ops.errors import ExitStatus, Problem
from ops.output import Report, Table

HELP = "compare Stripe's balance transactions with our rows, to the cent"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--from", dest="since", type=_day, required=True, metavar="DAY", help="first day, UTC")
    parser.add_argument("--to", dest="until", type=_day, metavar="DAY", help="last day, UTC (default: the first)")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    since: datetime = arguments.since
    until = (arguments.until or since) + timedelta(days=1)
    if until <= since:
        raise Problem("--to is before --from")
    payments = Rows(stack.dynamodb, stack.resource("PaymentsTable"))
    refunds = Rows(stack.dynamodb, stack.resource("RefundsTable"))
    is_over = until <= datetime.now(UTC)
    found = compare(StripeBooks(stack.stripe), payments, refunds, int(since.timestamp()), int(until.timestamp()))
    notes = [] if is_over else ["the time is not over yet: what is in progress may be shown as a difference"]
    return _report(found, since, until, notes)


def _day(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a day such as 2026-11-21") from None


def _report(found: Audited, since: datetime, until: datetime, notes: list[str]) -> Report:
    elsewhen = sum(total.elsewhen for total in found.totals.values())
    parts = [_totals_table(found, since, until)]
    if found.different:
        parts.append(_differences_table(found))
    if elsewhen:
        notes = [
            f"{elsewhen} of our rows were finalized within this time, and are booked at Stripe at another",
            *notes,
        ]
    if found.foreign:
        parts.append(_foreign_table(found))
    verdict = f"{found.different} differences" if found.different else "balanced to the cent"
    document = {
        "from": since.isoformat(),
        "until": until.isoformat(),
        "transactions": found.transactions,
        "different": found.different,
        "totals": [
            {"what": kind, "currency": currency, **asdict(total), "difference_minor": total.difference_minor}
            for (kind, currency), total in sorted(found.totals.items())
        ],
        "differences": [
            {**asdict(each), "difference_minor": each.difference_minor, "command": _command(each)}
            for each in found.differences
        ],
        "not_ours": [
            {"type": type_, "currency": currency, "number": number, "minor": found.foreign_minor[type_, currency]}
            for (type_, currency), number in sorted(found.foreign.items())
        ],
        "notes": notes,
    }
    return Report(document, [*parts, *notes, verdict], ExitStatus.FOUND if found.different else ExitStatus.OK)


def _totals_table(found: Audited, since: datetime, until: datetime) -> Table:
    columns = ("what", "matched", "at Stripe only", "ours only", "differ", "Stripe's sum", "our sum", "difference")
    rows = [
        (
            *(kind, total.matched, total.stripe_only, total.ours_only, total.differing),
            f"{total.at_stripe_minor} {currency}",
            f"{total.ours_minor} {currency}",
            f"{total.difference_minor} {currency}",
        )
        for (kind, currency), total in sorted(found.totals.items())
    ]
    last = until - timedelta(days=1)
    days = f"{since:%Y-%m-%d}" + (f" to {last:%Y-%m-%d}" if last > since else "")
    title = f"{days}, UTC: {found.transactions:,} transactions of Stripe; sums in minor units"
    return Table(title, columns, rows)


def _differences_table(found: Audited) -> Table:
    columns = ("where", "what", "order", "at Stripe", "Stripe's amount", "our amount", "why", "command")
    rows = [
        (
            *(each.where, each.kind, each.order_id, each.stripe_id),
            f"{each.at_stripe_minor} {each.currency}",
            f"{each.ours_minor} {each.currency}",
            *(each.why, _command(each)),
        )
        for each in found.differences
    ]
    more = f", the first {len(rows):,} of {found.different:,}" if found.different > len(rows) else ""
    return Table(f"differences{more}", columns, rows)


def _foreign_table(found: Audited) -> Table:
    rows = [
        (type_, number, f"{found.foreign_minor[type_, currency]} {currency}")
        for (type_, currency), number in sorted(found.foreign.items())
    ]
    return Table("not ours, and not a difference", ("Stripe's type", "transactions", "sum"), rows)


def _command(each: Difference) -> str | None:
    return f"python -m ops explain {each.order_id}" if each.order_id else None
