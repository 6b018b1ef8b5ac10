"""`make rows [ROWS=1000000] [WORK=2000]`: does a job cost more for each order when the tables have more rows?

For each number of rows up to ROWS, ten times as many each: WORK orders wait, WORK payments are unfinished, WORK
documents are due, among rows that are done. Units are those that DynamoDB Local reports (ReturnConsumedCapacity), which
it counts as DynamoDB does, indexes included. Seconds are those of this machine, most of them DynamoDB Local's: they
compare one number of rows with another, and say nothing of AWS.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.rows import jobs
from benchmarks.rows.database import Item, client_of, fill
from testing.dynamodb_local import running_dynamodb_local
from testing.harness import create_table

ROWS, ROWS_MIN, WORK = 1_000_000, 10_000, 2_000
JOBS: dict[str, Callable[[str, int], jobs.Cost]] = {
    "republish: published": jobs.republish,
    "republish: not due yet": jobs.nothing_due,
    "pending: listed": jobs.pending,
    "reconcile: event": jobs.reconcile_events,
    "reconcile: row": jobs.reconcile_rows,
    "due: ordered": jobs.due,
    "due: done, read again": jobs.done_documents,
}
FLAT = 1.05
"""A job costs the same if its units for each order grow by less than this."""


def main() -> int:
    """Print the table. The exit status is 1 if a job costs more for each order among more rows."""
    parser = argparse.ArgumentParser(prog="make rows", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--work", type=int, default=WORK)
    given = parser.parse_args()
    sizes = sorted({min(ROWS_MIN * 10**power, given.rows) for power in range(9)})
    console = Console()
    table = Table(
        "rows",
        "job",
        "requests",
        "read units",
        "write units",
        "orders/s here",
        title="for each order, event or document",
    )
    costs: dict[str, list[jobs.Cost]] = {}
    with tempfile.TemporaryDirectory() as folder, running_dynamodb_local(Path(folder), heap_max="6g") as url:
        for number, rows in enumerate(sizes):
            _make_tables(url, rows, given.work, is_first=number == 0)
            for name, job in JOBS.items():
                cost = job(url, rows if job is jobs.done_documents else given.work)
                costs.setdefault(name, []).append(cost)
                units = (f"{cost.requests:.3f}", f"{cost.read_units:.3f}", f"{cost.write_units:.2f}")
                speed = "too few to measure" if cost.orders_a_second is None else f"{cost.orders_a_second:,.0f}"
                table.add_row(f"{rows:,}", name, *units, speed)
            table.add_section()
    console.print(table)
    grown = [name for name, of_job in costs.items() if _grows(of_job)]
    console.print(f"costs more among more rows: {', '.join(grown)}" if grown else "each costs the same among more rows")
    return 1 if grown else 0


def _grows(costs: list[jobs.Cost]) -> bool:
    units = [cost.read_units + cost.write_units for cost in costs]
    return max(units) > FLAT * units[0] + 0.01


def _make_tables(url: str, rows: int, work: int, *, is_first: bool) -> None:
    client = client_of(url)
    for name, logical_id in jobs.TABLES.items():
        if not is_first:
            client.delete_table(TableName=name)
        create_table(client, name, logical_id)
    for name, items in (
        ("orders", jobs.orders(rows, work)),
        ("payments", jobs.finished_payments(url, rows)),
        ("documents", jobs.documents(rows, work)),
    ):
        with _progress(f"{rows:,} {name}", rows) as advance:
            _fill(url, name, items, advance)


def _fill(url: str, name: str, items: Iterator[Item], advance: Callable[[int], None]) -> None:
    began = time.perf_counter()
    fill(url, name, items, advance)
    Console(stderr=True).print(f"{name} filled in {time.perf_counter() - began:.0f} s", style="dim")


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


raise SystemExit(main())
