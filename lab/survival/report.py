"""The results as a table for a terminal, as a picture, and as a page whose cells lead to one of their schedules."""

import inspect
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

from rich.table import Table
from rich.text import Text

from lab.survival.designs import DESIGNS, OURS
from lab.survival.faults import FAULTS, SEEN
from lab.survival.results import Cell, Results, trace
from onecharge.payments import charge

_LOOKED_THROUGH = 30
"""How many schedules of a cell that does not fail are looked through for one in which people act."""
_DOCS = Path(__file__).parents[2] / "docs"
PICTURE, PAGE = _DOCS / "survival.svg", _DOCS / "survival.html"
LEGEND = (
    "* In some schedules the order was held, and an operator released it with `ops release`.",
    "† In some schedules the customer was told that the payment was declined, and paid again.",
)
"""What a cell's marks mean."""


def heading(results: Results) -> str:
    """The table's heading."""
    return f"Orders charged twice (2x) and never charged (lost) of {results.schedules:,}, seed {results.seed}"


def shown(cell: Cell) -> tuple[str, str]:
    """A cell's kind (double, lost or none), and its text."""
    failures = {"2x": cell.double, "lost": cell.lost}
    text = " ".join(f"{count:,} {how}" for how, count in failures.items() if count)
    kind = "double" if cell.double else "lost" if cell.lost else "none"
    return kind, text or f"0{'*' if cell.released else ''}{'†' if cell.paid_again else ''}"


def for_the_terminal(results: Results) -> Table:
    table = Table("what goes wrong", title=heading(results), caption="\n".join(LEGEND), show_lines=True)
    styles = {"double": "bold red", "lost": "yellow", "none": "green"}
    for design in DESIGNS.values():
        table.add_column(design.title, justify="right")
    for fault, row in results.cells.items():
        cells = (shown(row[design]) for design in DESIGNS)
        table.add_row(FAULTS[fault].title, *(Text(text, style=styles[kind]) for kind, text in cells))
    return table


# ---------------------------------------------------------------- the picture

_COLORS = """
  .double { fill: #c62828; background: #c62828; } .lost { fill: #f5b942; background: #f5b942; }
  .none { fill: #d9efdd; background: #d9efdd; }
  .on-double { fill: #fff; color: #fff; } .on-lost { fill: #1f2328; color: #1f2328; }
  .on-none { fill: #1a5e2a; color: #1a5e2a; }
  @media (prefers-color-scheme: dark) {
    .double { fill: #b3261e; background: #b3261e; } .lost { fill: #d99a20; background: #d99a20; }
    .none { fill: #14351d; background: #14351d; } .on-none { fill: #9fdcae; color: #9fdcae; }
  }
"""
_STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .page { fill: #fff; } .title { font-size: 15px; font-weight: 600; } .row { font-size: 13px; }
  .head, .cell { text-anchor: middle; } .ours, .cell { font-weight: 600; }
  .frame { fill: none; stroke: #1a5e2a; stroke-width: 2; }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .page { fill: #0d1117; } .frame { stroke: #57b36b; } }
"""
_LABELS, _COLUMN, _ROW, _TOP, _MARGIN = 376, 104, 30, 84, 16


def svg(results: Results) -> str:
    """Designs are columns, faults are rows: charged twice is red, lost is amber, neither is green."""
    width = _LABELS + _COLUMN * len(DESIGNS) + _MARGIN
    bottom = _TOP + _ROW * len(results.cells)
    size = f'viewBox="0 0 {width} {bottom + 2 * _ROW}" width="{width}" height="{bottom + 2 * _ROW}"'
    x, y = _LABELS + list(DESIGNS).index(OURS) * _COLUMN, _TOP - 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        f'<title id="title">{heading(results)}</title><style>{_STYLE}{_COLORS}</style>',
        '<rect class="page" width="100%" height="100%"/>',
        f'<text class="title" x="{_MARGIN}" y="27">{heading(results)}</text>',
        *_columns(results),
        f'<rect class="frame" x="{x}" y="{y}" width="{_COLUMN}" height="{bottom - y}" rx="4"/>',
    ]
    for number, text in enumerate(LEGEND):
        lines.append(f'<text class="row" x="{_MARGIN}" y="{bottom + 20 + 20 * number}">{escape(text)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _columns(results: Results) -> Iterator[str]:
    for number, fault in enumerate(results.cells):
        yield f'<text class="row" x="{_MARGIN}" y="{_TOP + number * _ROW + 18}">{escape(FAULTS[fault].title)}</text>'
    for column, (name, design) in enumerate(DESIGNS.items()):
        left = _LABELS + column * _COLUMN
        middle, lines = left + _COLUMN // 2, design.title.split("\n")
        for number, line in enumerate(lines):
            y, ours = _TOP - 10 - 16 * (len(lines) - 1 - number), " ours" if name == OURS else ""
            yield f'<text class="head{ours}" x="{middle}" y="{y}">{escape(line)}</text>'
        for number, row in enumerate(results.cells.values()):
            kind, text = shown(row[name])
            size = f'width="{_COLUMN - 2}" height="{_ROW - 3}" rx="3"'
            yield f'<rect class="{kind}" x="{left + 1}" y="{_TOP + number * _ROW}" {size}/>'
            yield f'<text class="cell on-{kind}" x="{middle}" y="{_TOP + number * _ROW + 17}">{text}</text>'


# ---------------------------------------------------------------- the page

_PAGE_STYLE = """
  :root { color-scheme: light dark; }
  body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; margin: 16px auto; max-width: 1280px;
         padding: 0 16px; }
  p, li { max-width: 80ch; overflow-wrap: anywhere; }
  .scroll { overflow-x: auto; } table { border-spacing: 2px; font-size: 13px; }
  th { font-weight: 400; text-align: left; padding: 4px 8px; min-width: 88px; } thead th { vertical-align: bottom; }
  td { text-align: center; border-radius: 4px; font-weight: 600; }
  td a { display: block; padding: 6px 4px; color: inherit; }
  pre { overflow-x: auto; padding: 8px 12px; border-radius: 8px; font-size: 12.5px; background: #80808020; }
"""


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Which designs survive which faults</title><style>{style}</style>
</head>
<body><main>
<h1>Which designs survive which faults</h1>
<p>An order is published, a worker behind a queue charges it with Stripe, and one thing goes wrong. Red is the number of
orders that are charged twice, amber the number that are never charged. A cell leads to one of its schedules, line by
line; a design to its code. lab/survival/README.md says how they are run.</p>
<h2 id="table">{heading}</h2>
<div class="scroll" role="region" tabindex="0" aria-labelledby="table">
<table><thead><tr><th scope="col">what goes wrong</th>{titles}</tr></thead><tbody>{rows}</tbody></table>
</div>
<p>{legend}</p>
<p>With {versions}.</p>
<h2>Seen in the wild</h2>
<ul>{seen}</ul>
{designs}
</main></body>
</html>
"""


def page(results: Results) -> str:
    """The table, the code of each design, and a schedule of each cell that fails, and of each of ours."""
    seen = (
        f'<li>{FAULTS[fault].title}, <a href="https://github.com/{path}">{path}</a>: {what}</li>'
        for fault, path, what in SEEN
    )
    return _PAGE.format(
        style=_PAGE_STYLE + _COLORS,
        heading=heading(results),
        titles="".join(f'<th scope="col"><a href="#{name}">{_one_line(name)}</a></th>' for name in DESIGNS),
        rows="\n".join(_row(fault, row) for fault, row in results.cells.items()),
        legend=escape(" ".join(LEGEND)),
        versions=", ".join(f"{name} {version}" for name, version in results.versions.items()),
        seen="\n".join(seen),
        designs="\n".join(_design(results, name) for name in DESIGNS),
    )


def _one_line(design: str) -> str:
    return DESIGNS[design].title.replace("\n", " ")


def _has_schedule(design: str, cell: Cell) -> bool:
    return design == OURS or shown(cell)[0] != "none"


def _row(fault: str, row: Mapping[str, Cell]) -> str:
    cells = []
    for design, cell in row.items():
        kind, text = shown(cell)
        link = f'<a href="#{fault}-{design}">{text}</a>' if _has_schedule(design, cell) else text
        cells.append(f'<td class="{kind} on-{kind}">{link}</td>')
    return f'<tr><th scope="row">{FAULTS[fault].title}</th>{"".join(cells)}</tr>'


def code_of(design: str) -> str:
    """The design's function; of ours, the one that charges an order."""
    return inspect.getsource(charge.charge if design == OURS else DESIGNS[design].start)


def _design(results: Results, design: str) -> str:
    parts = [f'<h2 id="{design}">{_one_line(design)}</h2><pre tabindex="0">{escape(code_of(design))}</pre>']
    for fault, row in results.cells.items():
        if _has_schedule(design, row[design]):
            schedules = results.schedules if shown(row[design])[0] != "none" else _LOOKED_THROUGH
            number, lines = trace(fault, design, results.seed, schedules)
            parts.append(f'<h3 id="{fault}-{design}">{_one_line(design)}: {FAULTS[fault].title}</h3>')
            parts.append(f'<p>Schedule {number} of seed {results.seed}. <a href="#table">Back to the table</a></p>')
            parts.append(f'<pre tabindex="0">{escape(chr(10).join(lines))}</pre>')
    return "\n".join(parts)
