"""The results as text: for a terminal, and as Markdown for the README."""

from pathlib import Path

from rich.table import Table
from rich.text import Text

from benchmarks.survival.designs import DESIGNS
from benchmarks.survival.faults import FAULTS
from benchmarks.survival.results import Cell, Results

README = Path(__file__).with_name("README.md")
_BEGIN, _END = "<!-- results: written by make survival -->\n", "<!-- end of results -->\n"
_PER = 10_000


def heading(results: Results) -> str:
    """The table's heading."""
    scaled = "" if results.schedules == _PER else f", scaled from {results.schedules:,}"
    return f"Orders charged twice (2x) and never charged (lost), per {_PER:,} schedules{scaled}, seed {results.seed}"


def per_ten_thousand(count: int, cell: Cell) -> str:
    """Scaled and rounded; less than one is "<1", never 0."""
    scaled = count * _PER / cell.schedules
    return f"{round(scaled):,}" if scaled >= 1 or not count else "<1"


def failures(cell: Cell) -> list[str]:
    """One line for each kind of failure."""
    counts = ((cell.double, "2x"), (cell.lost, "lost"))
    return [f"{per_ten_thousand(count, cell)} {kind}" for count, kind in counts if count]


def for_the_terminal(results: Results) -> Table:
    table = Table(title=heading(results), show_lines=True)
    table.add_column("what goes wrong")
    for design in DESIGNS.values():
        table.add_column(design.title, justify="right")
    for fault, row in results.cells.items():
        table.add_row(FAULTS[fault].title, *(_colored(row.get(design)) for design in DESIGNS))
    return table


def _colored(cell: Cell | None) -> Text:
    if cell is None:
        return Text("n/a", style="dim")
    lines = [Text(line, style="bold red" if line.endswith("2x") else "yellow") for line in failures(cell)]
    return Text("\n").join(lines) if lines else Text("0", style="green")


def in_markdown(results: Results) -> str:
    titles = [design.title.replace("\n", " ") for design in DESIGNS.values()]
    lines = [
        heading(results) + ":",
        "",
        "| what goes wrong | " + " | ".join(titles) + " |",
        "|---|" + "---:|" * len(titles),
    ]
    for fault, row in results.cells.items():
        cells = [_in_markdown(row.get(design)) for design in DESIGNS]
        lines.append(f"| {FAULTS[fault].title} | " + " | ".join(cells) + " |")
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    return "\n".join([*lines, "", f"With {versions}.", ""])


def _in_markdown(cell: Cell | None) -> str:
    if cell is None:
        return "n/a"
    return "<br>".join(f"**{line}**" for line in failures(cell)) or "0"


def write_into_readme(results: Results) -> None:
    """Replace the table between the two markers."""
    text = README.read_text()
    before, rest = text.split(_BEGIN)
    after = rest.split(_END)[1]
    README.write_text(f"{before}{_BEGIN}\n{in_markdown(results)}\n{_END}{after}")
