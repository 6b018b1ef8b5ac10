"""The results as a plain SVG for light and dark pages."""

from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.survival.designs import DESIGNS
from benchmarks.survival.faults import FAULTS
from benchmarks.survival.results import Cell, Results
from benchmarks.survival.tables import failures, heading

PICTURE = Path(__file__).parents[2] / "docs" / "survival.svg"

_LABELS, _COLUMN, _ROW, _TOP, _MARGIN, _GAP = 376, 98, 30, 84, 16, 2
_OURS = "onecharge"
_STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .head { font-size: 12px; text-anchor: middle; }
  .ours { font-weight: 700; }
  .cell { text-anchor: middle; font-size: 12px; font-weight: 600; }
  .page { fill: #ffffff; }
  .double { fill: #c62828; } .on-double { fill: #ffffff; }
  .lost { fill: #f5b942; } .on-lost { fill: #1f2328; }
  .none { fill: #d9efdd; } .on-none { fill: #1a5e2a; }
  .never { fill: #eceff1; } .on-never { fill: #5f6b76; }
  .frame { fill: none; stroke: #1a5e2a; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .page { fill: #0d1117; }
    .double { fill: #b3261e; }
    .lost { fill: #d99a20; }
    .none { fill: #14351d; } .on-none { fill: #9fdcae; }
    .never { fill: #21262d; } .on-never { fill: #9aa4ae; }
    .frame { stroke: #57b36b; }
  }
"""


def svg(results: Results) -> str:
    """Designs are columns, faults are rows: charged twice is red, lost is amber, neither is green."""
    width = _LABELS + _COLUMN * len(DESIGNS) + _MARGIN
    height = _TOP + _ROW * len(results.cells) + _MARGIN
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        f'<title id="title">{escape(heading(results))}</title>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text class="title" x="{_MARGIN}" y="28">{escape(heading(results))}</text>',
        *_header(),
    ]
    for number, (fault, row) in enumerate(results.cells.items()):
        y = _TOP + number * _ROW
        lines.append(f'<text x="{_MARGIN}" y="{y + 18}">{escape(FAULTS[fault].title)}</text>')
        for column, design in enumerate(DESIGNS):
            lines.extend(_cell(row.get(design), _LABELS + column * _COLUMN, y))
    x, y = _LABELS + list(DESIGNS).index(_OURS) * _COLUMN, _TOP - 40
    lines.append(f'<rect class="frame" x="{x}" y="{y}" width="{_COLUMN}" height="{height - y - _MARGIN}" rx="4"/>')
    return "\n".join([*lines, "</svg>", ""])


def _header() -> Iterator[str]:
    for column, design in enumerate(DESIGNS.values()):
        x = _LABELS + column * _COLUMN + _COLUMN // 2
        kind = "head ours" if design.name == _OURS else "head"
        lines = design.title.split("\n")
        for number, line in enumerate(lines):
            y = _TOP - 10 - 16 * (len(lines) - 1 - number)
            yield f'<text class="{kind}" x="{x}" y="{y}">{escape(line)}</text>'


def _cell(cell: Cell | None, x: int, y: int) -> Iterator[str]:
    """One box; two, one above the other, if the design fails in both ways."""
    if cell is None:
        boxes = [("never", "n/a")]
    else:
        boxes = [("double" if line.endswith("2x") else "lost", line) for line in failures(cell)] or [("none", "0")]
    height = (_ROW - _GAP) // len(boxes)
    for number, (kind, text) in enumerate(boxes):
        top, size = y + number * height, f'width="{_COLUMN - _GAP}" height="{height - 1}" rx="3"'
        yield f'<rect class="{kind}" x="{x + _GAP // 2}" y="{top}" {size}/>'
        yield f'<text class="cell on-{kind}" x="{x + _COLUMN // 2}" y="{top + height // 2 + 4}">{escape(text)}</text>'
