"""`make load RATE=… SECONDS=…`: orders at a constant rate against the local stack, and how long each takes until PAID.

The figures are this machine's and its emulator's, which runs every function, table and queue on the same cores: they
say that nothing is lost or charged twice under load, and where time goes; not how fast AWS is.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.load.figures import Figures, figures_of
from benchmarks.load.open_loop import OpenLoop, Sent
from benchmarks.load.picture import in_words, svg
from benchmarks.load.traffic import ANSWER_SECONDS_MAX, Client, charges_by_order, follow
from local.idle import NotIdle, wait_until_idle
from local.stack import PROJECT, Stack, running_stack
from local.terminal import run_in_terminal
from local.work_dir import sole_user_of
from testing.arguments import Arguments, at_least, between

RATE_MAX = 200
"""Orders a second: more than one process of Python sends on time."""
KEPT_PICTURE = PROJECT / "docs" / "load.svg"
STRIPE_SECONDS = 0.3
"""How long the stand-in takes for one request; an order makes two."""
_WARM_UP = 4
"""Orders that come first, and are not counted: the emulator's cold starts are not Lambda's."""
_IDLE_SECONDS = 300


def measure(stack: Stack, rate: int, seconds: int, console: Console) -> tuple[list[Sent], Figures]:
    """One run, until every order has its outcome or the time is up."""
    stack.stripe.settings(latency_seconds=STRIPE_SECONDS)
    client = Client(stack)
    warm_up = {client.place(-number) for number in range(1, _WARM_UP + 1)}
    wait_until_idle(stack, timeout_seconds=_IDLE_SECONDS)
    with _shown(console, rate * seconds) as loop_bars:
        loop = OpenLoop(client.place, on_sent=loop_bars[0], on_answered=loop_bars[1])
        sent = loop.run(rate, seconds)
        loop.wait(ANSWER_SECONDS_MAX + 5)
    console.print("• waiting until every order has its outcome")
    try:
        wait_until_idle(stack, timeout_seconds=_IDLE_SECONDS)
    except NotIdle as reason:
        console.print(f"• {reason}", style="red")
    follow(sent, stack)
    charges = {order: count for order, count in charges_by_order(stack).items() if order not in warm_up}
    return sent, figures_of(sent, rate=rate, seconds=seconds, charges=charges)


@contextmanager
def _shown(console: Console, total: int) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    columns = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        sent, answered = progress.add_task("orders sent", total=total), progress.add_task("answered", total=total)
        yield lambda: progress.advance(sent), lambda: progress.advance(answered)


def table_of(figures: Figures) -> Table:
    """The figures as they are printed."""
    table = Table(title=f"{figures.offered_rate:g} orders a second for {figures.seconds} s", title_justify="left")
    table.add_column("on the local stack: this machine's figures, not AWS's")
    table.add_column("", justify="right")

    def row(what: str, figure: object, is_good: bool | None = None) -> None:
        mark = "" if is_good is None else " [green]✓[/]" if is_good else " [bold red]✗[/]"
        table.add_row(what, f"{figure}{mark}")

    row("orders sent", figures.sent)
    row("  accepted (202)", figures.accepted, figures.accepted == figures.sent)
    for error, count in figures.errors.items():
        row(f"  {error}", count, False)
    row("orders a second: offered", f"{figures.offered_rate:g}")
    row("  accepted, until the last answer", f"{figures.accepted_rate:g}")
    row("  PAID, until the last one", f"{figures.paid_rate:g}")
    row("POST to its answer", in_words(figures.to_answer))
    row("POST to PAID", in_words(figures.to_paid))
    table.add_section()
    row("accepted orders: PAID", figures.paid, figures.paid == figures.accepted)
    row("  charged once, by the ledger", figures.charged_once, figures.charged_once == figures.accepted)
    row("  charged more than once", figures.charged_more_than_once, not figures.charged_more_than_once)
    row("  not charged", figures.not_charged, not figures.not_charged)
    row("charges of nobody", figures.charges_of_nobody, not figures.charges_of_nobody)
    return table


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Arguments(prog="make load", description=__doc__)
    parser.add_argument(
        "--rate", type=between(1, RATE_MAX, "RATE"), default=2, help=f"orders a second, 1 to {RATE_MAX}"
    )
    parser.add_argument("--seconds", type=at_least(1, "SECONDS"), default=30, help="for how long, from 1")
    parser.add_argument("--write", action="store_true", help="keep the picture as docs/load.svg")
    parser.add_argument("--work-dir", type=Path, default=PROJECT / ".local" / "load")
    parser.add_argument("--picture", type=Path, default=PROJECT / ".local" / "load.svg")
    return parser.parse_args(arguments)


def load(options: argparse.Namespace, console: Console) -> int:
    """Returns 0 if every accepted order was charged once and is PAID, 1 if not."""
    work_dir = options.work_dir.resolve()
    with (
        sole_user_of(work_dir),
        running_stack(work_dir=work_dir, on_progress=lambda m: console.print(f"• {m}", highlight=False)) as stack,
    ):
        console.print(f"• placing {options.rate * options.seconds} orders, {options.rate} a second")
        sent, figures = measure(stack, options.rate, options.seconds, console)
    console.print(table_of(figures))
    picture = svg(sent, figures)
    for path in [options.picture, *([KEPT_PICTURE] if options.write else [])]:
        path.write_text(picture)
    options.picture.with_suffix(".json").write_text(figures.as_json())
    console.print(f"latency over time: {options.picture}", highlight=False, soft_wrap=True)
    return 0 if figures.is_kept else 1


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    return run_in_terminal(lambda console: load(options, console))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
