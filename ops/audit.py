"""Stripe's balance transactions against our rows, to the cent, by currency.

    audit --from 2026-11-20                        one day, in UTC
    audit --from 2026-11-01 --to 2026-11-30        both days included

A movement is matched if both sides have it with the same amount, whichever day ours was finalized on; rows that Stripe
has booked on another day are counted apart, and so are movements of the account that are not ours: fees, payouts, other
charges. Reads the Payments table as a whole (about one cent for a million rows), and one page of Stripe's for each
hundred transactions. A restricted Stripe key needs to read balance transactions, charges, refunds, disputes and
PaymentIntents.
"""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ops.auditing.auditor import Audited, Auditor
from ops.auditing.booked import StripeBooks
from ops.auditing.compare import Difference
from ops.auditing.refunds import RefundRows
from ops.auditing.rows import PaymentRows
from ops.connection import Stack
from ops.errors import ExitStatus, Problem
from ops.output import Report, Table

HELP = "compare Stripe's balance transactions with our rows, to the cent"


def add_arguments(parser: ArgumentParser) -> None:
    """The days."""
    parser.add_argument("--from", dest="since", type=_day, required=True, metavar="DAY", help="first day, UTC")
    parser.add_argument("--to", dest="until", type=_day, metavar="DAY", help="last day, UTC (default: the first)")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    since: datetime = arguments.since
    until = (arguments.until or since) + timedelta(days=1)
    if until <= since:
        raise Problem("--to is before --from")
    now = datetime.now(UTC)
    with _progress() as on_progress:
        auditor = Auditor(
            StripeBooks(stack.stripe),
            PaymentRows(stack.dynamodb, stack.resource("PaymentsTable")),
            refunds=RefundRows(stack.dynamodb, stack.resource("RefundsTable")),
            on_progress=on_progress,
        )
        found = auditor.audit(int(since.timestamp()), int(until.timestamp()))
    notes = ["the time is not over yet: what is in progress may be shown as a difference"] if until > now else []
    return _report(found, since, until, notes)


def _day(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no day such as 2026-11-21") from None


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr, if that is a terminal."""
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("…", total=1.0)
        yield lambda what, part: progress.update(task, description=what, completed=part)


def _report(found: Audited, since: datetime, until: datetime, notes: list[str]) -> Report:
    totals = sorted(found.totals.items())
    columns = ("what", "matched", "at Stripe only", "ours only", "differ", "Stripe's sum", "our sum", "difference")
    rows = [
        (
            kind,
            total.matched,
            total.stripe_only,
            total.ours_only,
            total.differing,
            _money(total.at_stripe_minor, currency),
            _money(total.ours_minor, currency),
            _money(total.difference_minor, currency),
        )
        for (kind, currency), total in totals
    ]
    elsewhen = sum(total.elsewhen for _, total in totals)
    days = f"{since:%Y-%m-%d}" + (f" to {until - timedelta(days=1):%Y-%m-%d}" if until - since > timedelta(1) else "")
    parts: list[Table | str] = [
        Table(f"{days}, UTC: {found.transactions:,} transactions of Stripe; sums in minor units", columns, rows)
    ]
    if found.different:
        parts.append(_differences_table(found))
    if elsewhen:
        parts.append(f"{elsewhen} of our rows were finalized within this time, and are booked at Stripe at another")
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
            for (kind, currency), total in totals
        ],
        "differences": [_described(each) for each in found.differences],
        "not_ours": [
            {"type": type_, "currency": currency, "number": number, "minor": found.foreign_minor[type_, currency]}
            for (type_, currency), number in sorted(found.foreign.items())
        ],
        "notes": notes,
    }
    return Report(document, [*parts, *notes, verdict], ExitStatus.FOUND if found.different else ExitStatus.OK)


def _differences_table(found: Audited) -> Table:
    columns = ("where", "what", "order", "at Stripe", "Stripe's amount", "our amount", "why", "command")
    rows = [
        (
            each.where,
            each.kind,
            each.order_id,
            each.stripe_id,
            _money(each.at_stripe_minor, each.currency),
            _money(each.ours_minor, each.currency),
            each.why,
            _command(each),
        )
        for each in found.differences
    ]
    more = f", the first {len(rows):,} of {found.different:,}" if found.different > len(rows) else ""
    return Table(f"differences{more}", columns, rows)


def _foreign_table(found: Audited) -> Table:
    rows = [
        (type_, number, _money(found.foreign_minor[type_, currency], currency))
        for (type_, currency), number in sorted(found.foreign.items())
    ]
    return Table("not ours, and no difference", ("Stripe's type", "transactions", "sum"), rows)


def _described(each: Difference) -> dict[str, object]:
    return {**asdict(each), "difference_minor": each.difference_minor, "command": _command(each)}


def _command(each: Difference) -> str | None:
    return f"python -m ops explain {each.order_id}" if each.order_id else None


def _money(minor: int, currency: str) -> str:
    return f"{minor} {currency}"
