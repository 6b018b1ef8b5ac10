"""The results as an SVG: one picture for the README, readable on a light and on a dark page."""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from benchmarks.speed.results import OURS, PEER, TITLES, USUAL, Run

PICTURE = Path(__file__).parents[2] / "docs" / "speed.svg"

_LABELS, _SCALE, _AFTER, _HEAD, _BAR, _GAP, _TOP, _MARGIN = 170, 480, 110, 20, 15, 14, 60, 16
_LONGEST = 1.5
"""A bar that is longer than this times the compared one is cut."""
_STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .what { font-weight: 600; }
  .page { fill: #ffffff; }
  .ours { fill: #2e7d46; } .other { fill: #b8c0c8; }
  .one { stroke: #5f6b76; stroke-dasharray: 3 3; } .target { stroke: #c62828; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .page { fill: #0d1117; }
    .ours { fill: #57b36b; } .other { fill: #4a535d; }
    .one { stroke: #9aa4ae; } .target { stroke: #f5b942; }
  }
"""


@dataclass(frozen=True)
class Group:
    """One measure: a figure for each design, the one that is 1, and the target as a part of it."""

    what: str
    unit: str
    figures: Mapping[str, float]
    base: str
    target: float | None = None
    """None where the target is no part of the compared design's figure."""


def groups_of(run: Run) -> list[Group]:
    """What the picture shows."""

    def median(name: str, divided: bool = False) -> dict[str, float]:
        return {
            variant: statistics.median(each.times[name]) / (each.fresh.stripe if divided else 1)
            for variant, each in run.figures.items()
            if not (name.startswith("duplicate") and each.duplicate.stripe)  # It charges again.
        }

    cold = {name: statistics.median(each) for name, each in run.cold.items() if name != "usual-by-sam"}
    peaks = {name: each["1000"] for name, each in run.memory.items()}
    groups = [
        Group("wall time, 10 fresh orders", "ms", median("fresh_wall"), PEER),
        Group("wall time, 10 duplicates", "ms", median("duplicate_wall"), PEER, 0.25),
        Group("CPU per Stripe request, fresh", "ms", median("fresh_cpu", divided=True), PEER, 0.7),
        Group("CPU, 10 duplicates", "ms", median("duplicate_cpu"), PEER, 0.6),
        Group("process start to first claim", "ms", cold, USUAL, 0.65),
        Group("peak memory, 1,000 orders", "MB", peaks, PEER, 0.8),
    ]
    return [group for group in groups if group.figures]


def svg(run: Run) -> str:
    """A bar for each design, by measure. Dashed: the design that is compared with; red: the target."""
    groups = groups_of(run)
    width = _LABELS + _SCALE + _AFTER
    height = _TOP + sum(_HEAD + len(group.figures) * _BAR + _GAP for group in groups) + _MARGIN
    title = "onecharge beside the designs that people copy: shorter is better"
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title)}</title>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text class="title" x="{_MARGIN}" y="26">{escape(title)}</text>',
        f'<text x="{_MARGIN}" y="44">dashed: what it is compared with; solid line: what is to be reached</text>',
    ]
    y = _TOP
    for group in groups:
        lines.extend(_bars(group, y))
        y += _HEAD + len(group.figures) * _BAR + _GAP
    return "\n".join([*lines, "</svg>", ""])


def _bars(group: Group, top: int) -> Iterator[str]:
    """The measure's name, a line for each design, ours last, and the two vertical lines behind the figures."""
    base, unit = group.figures[group.base], _SCALE / _LONGEST
    first, bottom = top + _HEAD, top + _HEAD + len(group.figures) * _BAR
    yield f'<text class="what" x="{_MARGIN}" y="{top + 12}">{escape(group.what)}</text>'
    lines = list(enumerate(sorted(group.figures.items(), key=lambda item: item[0] == OURS)))
    for number, (name, figure) in lines:
        kind, length = "ours" if name == OURS else "other", _length(figure / base)
        place = f'x="{_LABELS}" y="{first + number * _BAR}" width="{length:.1f}" height="{_BAR - 3}"'
        yield f'<rect class="{kind}" {place} rx="2"/>'
    for kind, at in (("one", 1.0), ("target", group.target)):
        if at is not None:
            x = _LABELS + at * unit
            yield f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{first - 2}" y2="{bottom}"/>'
    for number, (name, figure) in lines:
        y = first + number * _BAR + 11
        cut = " (cut)" if figure / base > _LONGEST else ""
        shown = f"{figure:,.{0 if figure >= 100 else 1}f} {group.unit}{cut}"
        yield f'<text x="{_MARGIN + 12}" y="{y}">{escape(TITLES[name])}</text>'
        yield f'<text x="{_LABELS + _length(figure / base) + 6:.1f}" y="{y}">{shown}</text>'


def _length(share: float) -> float:
    """Of a bar, by the part of the compared design's figure."""
    return min(share, _LONGEST) * _SCALE / _LONGEST
