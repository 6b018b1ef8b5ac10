"""The results as a table, for a terminal and for the README, and as a picture."""

from collections.abc import Iterator
from html import escape
from pathlib import Path

from rich.table import Table
from rich.text import Text

from lab.publish import svg_page
from lab.survival.designs import DESIGNS
from lab.survival.faults import FAULTS
from lab.survival.recording import OURS
from lab.survival.results import Cell, Results

README = Path(__file__).with_name("README.md")
PICTURE = Path(__file__).parents[2] / "docs/survival.svg"
_PER = 10_000


def heading(results: Results) -> str:
    """The table's heading."""
    scaled = "" if results.schedules == _PER else f", scaled from {results.schedules:,}"
    return f"Orders charged twice (2x) and never charged (lost), per {_PER:,} schedules{scaled}, seed {results.seed}"


def cell_lines(cell: Cell | None) -> list[str]:
    """A cell's text: a line for each kind of failure, scaled and rounded (less than one is "<1")."""
    if cell is None:
        return ["n/a"]
    scaled = ((count * _PER / cell.schedules, kind) for count, kind in ((cell.double, "2x"), (cell.lost, "lost")))
    failures = [f"{f'{round(count):,}' if count >= 1 else '<1'} {kind}" for count, kind in scaled if count]
    return failures or [f"0{'*' if cell.released else ''}{'†' if cell.paid_again else ''}"]


LEGEND = (
    "* In some schedules the order was held, and an operator released it with `ops release`.",
    "† In some schedules the customer was told that the payment was declined, and paid again.",
)
"""What a cell's marks mean."""


def for_the_terminal(results: Results) -> Table:
    table = Table(title=heading(results), show_lines=True)
    table.add_column("what goes wrong")
    for design in DESIGNS.values():
        table.add_column(design.title, justify="right")
    for fault, row in results.cells.items():
        cells = (_colored(cell_lines(row.get(design))) for design in DESIGNS)
        table.add_row(FAULTS[fault].title, *cells)
    return table


def _kind(line: str) -> str:
    return {"2x": "double", "lost": "lost", "n/a": "never"}.get(line.split()[-1], "none")


def _colored(lines: list[str]) -> Text:
    styles = {"double": "bold red", "lost": "yellow", "never": "dim", "none": "green"}
    return Text("\n").join(Text(line, style=styles[_kind(line)]) for line in lines)


def in_markdown(results: Results) -> str:
    def shown(lines: list[str]) -> str:
        return "<br>".join(f"**{line}**" if _kind(line) in ("double", "lost") else line for line in lines)

    titles = [design.title.replace("\n", " ") for design in DESIGNS.values()]
    rows = [["what goes wrong", *titles], ["---", *["---:"] * len(titles)]]
    rows += [
        [FAULTS[fault].title, *(shown(cell_lines(row.get(design))) for design in DESIGNS)]
        for fault, row in results.cells.items()
    ]
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    table = (f"| {' | '.join(cells)} |" for cells in rows)
    seen = [
        f"- **{fault.title}**, [{_issue(address)}]({address}): {what}"
        for fault in FAULTS.values()
        for address, what in fault.seen
    ]
    said = [f"\\{' '.join(LEGEND)}", "", f"With {versions}.", "", "Seen in the wild:"]
    return "\n".join([heading(results) + ":", "", *table, "", *said, "", *seen, ""])


def _issue(address: str) -> str:
    """A GitHub address as people write it: owner/name#number."""
    _, _, _, owner, name, _, number = address.split("/")
    return f"{owner}/{name}#{number}"


_LABELS, _COLUMN, _ROW, _TOP, _MARGIN, _GAP = 376, 98, 30, 84, 16, 2
_LIGHT = """
  .head { text-anchor: middle; } .ours { font-weight: 700; } .row { font-size: 13px; }
  .cell { text-anchor: middle; font-weight: 600; }
  .double { fill: #c62828; } .on-double { fill: #ffffff; }
  .lost { fill: #f5b942; } .on-lost { fill: #1f2328; }
  .none { fill: #d9efdd; } .on-none { fill: #1a5e2a; }
  .never { fill: #eceff1; } .on-never { fill: #5f6b76; }
  .frame { fill: none; stroke: #1a5e2a; stroke-width: 2; }
"""
_DARK = """
  .double { fill: #b3261e; }
  .lost { fill: #d99a20; }
  .none { fill: #14351d; } .on-none { fill: #9fdcae; }
  .never { fill: #21262d; } .on-never { fill: #9aa4ae; }
  .frame { stroke: #57b36b; }
"""


def svg(results: Results) -> str:
    """Designs are columns, faults are rows: charged twice is red, lost is amber, neither is green."""
    width = _LABELS + _COLUMN * len(DESIGNS) + _MARGIN
    bottom = _TOP + _ROW * len(results.cells)
    body = list(_header())
    for number, (fault, row) in enumerate(results.cells.items()):
        y = _TOP + number * _ROW
        body.append(f'<text class="row" x="{_MARGIN}" y="{y + 18}">{escape(FAULTS[fault].title)}</text>')
        for column, design in enumerate(DESIGNS):
            body.extend(_cell(cell_lines(row.get(design)), _LABELS + column * _COLUMN, y))
    x, y = _LABELS + list(DESIGNS).index(OURS) * _COLUMN, _TOP - 40
    body.append(f'<rect class="frame" x="{x}" y="{y}" width="{_COLUMN}" height="{bottom - y}" rx="4"/>')
    body.append(f'<text class="row" x="{_MARGIN}" y="{bottom + 18}">{escape(" ".join(LEGEND))}</text>')
    return svg_page(heading(results), width, bottom + _ROW, (_LIGHT, _DARK), body)


def _header() -> Iterator[str]:
    for column, design in enumerate(DESIGNS.values()):
        x = _LABELS + column * _COLUMN + _COLUMN // 2
        kind = "head ours" if design.name == OURS else "head"
        lines = design.title.split("\n")
        for number, line in enumerate(lines):
            y = _TOP - 10 - 16 * (len(lines) - 1 - number)
            yield f'<text class="{kind}" x="{x}" y="{y}">{escape(line)}</text>'


def _cell(lines: list[str], x: int, y: int) -> Iterator[str]:
    """One box; two, one above the other, if the design fails in both ways."""
    height = (_ROW - _GAP) // len(lines)
    for number, text in enumerate(lines):
        kind = _kind(text)
        top, size = y + number * height, f'width="{_COLUMN - _GAP}" height="{height - 1}" rx="3"'
        yield f'<rect class="{kind}" x="{x + _GAP // 2}" y="{top}" {size}/>'
        yield f'<text class="cell on-{kind}" x="{x + _COLUMN // 2}" y="{top + height // 2 + 4}">{escape(text)}</text>'
