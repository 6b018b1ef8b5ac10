"""The rows as text: for a terminal, and as Markdown for the README."""

import re
from pathlib import Path
from textwrap import wrap

from rich.table import Table
from rich.text import Text

from benchmarks.speed.measure import DYNAMODB_SECONDS, STRIPE_SECONDS
from benchmarks.speed.results import OURS, PEER, TITLES, USUAL, Row, Run, rows_of
from testing.harness import PROJECT

_BEGIN, _END = "<!-- speed: written by make bench -->\n", "<!-- end of speed -->\n"
README = PROJECT / "README.md"
OWN_README = Path(__file__).with_name("README.md")
_QUARTILES = re.compile(r" \([-\d.,]+ to [-\d.,]+\)")
_WIDTH = 120
_SHOWN_FIRST = (PEER, USUAL, "naive")
"""Of which design a row shows the figure, in the short table."""


def heading(run: Run) -> str:
    """What was measured, and where."""
    return (
        f"{run.rounds} rounds on {run.machine}; Stripe at {STRIPE_SECONDS * 1000:.0f} ms and DynamoDB at "
        f"{DYNAMODB_SECONDS * 1000:.0f} ms a request for wall time, at none for CPU. Medians (quartiles)."
    )


def for_the_terminal(run: Run) -> Table:
    """Each row with the design that it is compared with; .local/bench.json has the others."""
    table = Table(title=heading(run))
    for name in ("for 10 orders a batch", "beside", "onecharge", "ratio", "to reach", ""):
        table.add_column(name)
    for row in rows_of(run):
        table.add_row(row.what, _compared_with(row), row.ours, row.compared, row.target, _verdict(row))
    return table


def _verdict(row: Row) -> Text:
    return Text("reached", style="green") if row.reached else Text("not reached", style="bold red")


def in_short(run: Run) -> str:
    """For the project's README: each row with the design that it is compared with, without quartiles."""
    lines = ["| for 10 orders a batch | beside | onecharge | ratio | to reach | |", "|---|---|---|---:|---|---|"]
    for row in rows_of(run):
        cells = [row.what, _compared_with(row), row.ours, row.compared, row.target]
        reached = "yes" if row.reached else "**no**"
        lines.append(f"| {' | '.join(_QUARTILES.sub('', cell) for cell in cells)} | {reached} |")
    return "\n".join([*lines, "", *wrap(heading(run), _WIDTH), ""])


def _compared_with(row: Row) -> str:
    order = ("naive", *_SHOWN_FIRST) if row.what.startswith("dollars") else _SHOWN_FIRST
    return next((f"{TITLES[name]}: {row.others[name]}" for name in order if name in row.others), "")


def in_full(run: Run) -> str:
    """For the benchmark's own README: every design."""
    rows = rows_of(run)
    names = [name for name in TITLES if name != OURS and any(name in row.others for row in rows)]
    titles = " | ".join(TITLES[name] for name in names)
    lines = [f"| what | {titles} | onecharge | to reach | |", "|---|" + "---|" * len(names) + "---|---|---|"]
    for row in rows:
        others = " | ".join(row.others.get(name, "") for name in names)
        reached = "reached" if row.reached else "**not reached**"
        lines.append(f"| {row.what} | {others} | {row.ours} | {row.target} | {reached} |")
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    return "\n".join([*lines, "", f"{heading(run)} {run.at}. With {versions}.", ""])


def write_into_readmes(run: Run) -> None:
    """Replace the tables between the markers."""
    for path, table in ((README, in_short(run)), (OWN_README, in_full(run))):
        before, rest = path.read_text().split(_BEGIN)
        after = rest.split(_END)[1]
        path.write_text(f"{before}{_BEGIN}\n{table}\n{_END}{after}")
