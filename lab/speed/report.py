"""The results as a table, for a terminal and for the README, and as a picture."""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap

from rich.table import Table

from lab.costs import bill
from lab.costs.bill import AS_FRAMEWORKS_HAVE_IT, BUSY
from lab.publish import svg_page
from lab.speed.functions import AWS_SECONDS, STRIPE_SECONDS
from lab.speed.results import DESIGNS, NAIVE, OURS, POWERTOOLS, TITLES, Figures, Run

README = Path(__file__).with_name("README.md")
PICTURE = Path(__file__).parents[2] / "docs/speed.svg"
HEADINGS = ["", *TITLES.values(), "onecharge is", "to hold", "what more buys"]
_TWO_CALLS = "two requests to Stripe: the PaymentIntent's id is stored before money can move"
_CHECKS = "validated messages, metrics, a known meaning of each answer"


@dataclass(frozen=True)
class Row:
    """One measure: a figure for each design, and how ours compares."""

    what: str
    unit: str
    figures: Mapping[str, float]
    """Without the designs that charge again instead."""
    base: float
    """The figure that ours is compared with."""
    ratio: float
    compared: str
    """What the ratio is of."""
    to_hold: float | None = None
    """The ratio that ours is not to exceed; None where it is only shown."""
    buys: str = ""
    """What we get for it, if one of the others has less."""

    def cell(self, design: str) -> str:
        if design not in self.figures:
            return "charges again"
        figure = self.figures[design]
        return f"${figure:,.2f}" if self.unit == "$" else f"{figure:,.{0 if figure >= 100 else 1}f} {self.unit}"

    def cells(self) -> list[str]:
        """A line of the table."""
        held = "" if self.to_hold is None else f"≤ {self.to_hold}: {'yes' if self.ratio <= self.to_hold else '**no**'}"
        is_more = self.figures[OURS] > min(self.figures.values())
        return [
            self.what,
            *map(self.cell, DESIGNS),
            f"{self.ratio:.2f} of {self.compared}",
            held,
            self.buys if is_more else "",
        ]


def rows_of(run: Run) -> list[Row]:
    """The table."""
    fresh, duplicates = _medians(run.fresh_ms), _medians(run.duplicates_ms)
    calls = {design: (2 if design == OURS else 1) * STRIPE_SECONDS * 1000 for design in DESIGNS}
    known = {design: each for design, each in duplicates.items() if design not in run.charges_again}
    return [
        _row("billed, 10 fresh orders", "ms", fresh, to_hold=0.25, buys=_TWO_CALLS),
        Row(
            "the Stripe calls of one order",
            *("ms", calls, calls[OURS], fresh[OURS] / calls[OURS]),
            "it, for all ten",
            1.2,
            _TWO_CALLS,
        ),
        _row("billed, 10 duplicates", "ms", known, to_hold=0.4),
        _row("CPU of an order", "ms", _medians(run.cpu_ms), buys=_TWO_CALLS),
        _row("cold start, as built by default", "ms", _medians(run.cold_ms), buys=_CHECKS),
        _row("cold start, with .pyc", "ms", _medians(run.cold_pyc_ms), to_hold=1.2, buys=_CHECKS),
        _row("peak memory, with .pyc", "MB", run.peak_mb, to_hold=1.15, buys=_CHECKS),
        _row("a million orders", "$", dollars(run), NAIVE, to_hold=0.85, buys="an outbox, and indexes of what waits"),
    ]


def dollars(run: Run) -> dict[str, float]:
    """For a million orders of a busy shop: lab/costs has each line of the bills."""
    settings = dict.fromkeys(DESIGNS, AS_FRAMEWORKS_HAVE_IT) | {OURS: bill.deployed()}
    return {name: bill.total(bill.bill(run.ways[name][str(BUSY)], BUSY, settings[name])) for name in DESIGNS}


def _medians(figures: Figures) -> dict[str, float]:
    return {design: statistics.median(figures[design]) for design in DESIGNS}


def _row(
    what: str,
    unit: str,
    figures: Mapping[str, float],
    peer: str = POWERTOOLS,
    *,
    to_hold: float | None = None,
    buys: str = "",
) -> Row:
    return Row(what, unit, figures, figures[peer], figures[OURS] / figures[peer], TITLES[peer], to_hold, buys)


def heading(run: Run) -> str:
    """What was measured, and where."""
    return (
        f"Batches of {BUSY} orders; Stripe takes {STRIPE_SECONDS * 1000:.0f} ms for a request, AWS "
        f"{AWS_SECONDS * 1000:.0f} ms; one vCPU. Medians of {run.rounds} rounds on {run.machine}."
    )


def for_the_terminal(run: Run) -> Table:
    table = Table(title=heading(run), show_lines=True)
    for name in HEADINGS:
        table.add_column(name)
    for row in rows_of(run):
        table.add_row(*(cell.replace("**", "") for cell in row.cells()))
    return table


def in_markdown(run: Run) -> str:
    lines = [HEADINGS, ["---"] * len(HEADINGS), *(row.cells() for row in rows_of(run))]
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    below = wrap(f"{heading(run)} {run.at}. With {versions}.", 120)
    return "\n".join([*(f"| {' | '.join(cells)} |" for cells in lines), "", *below, ""])


_LABELS, _SCALE, _WIDTH, _HEAD, _BAR, _TOP, _MARGIN = 160, 420, 700, 22, 15, 60, 16
_LONGEST = 1.5
"""A bar that is longer than this times the compared one is cut."""
_LIGHT = """
  .what { font-weight: 600; }
  .ours { fill: #2e7d46; } .other { fill: #b8c0c8; } .hold { stroke: #c62828; stroke-width: 2; }
"""
_DARK = """
  .ours { fill: #57b36b; } .other { fill: #4a535d; } .hold { stroke: #f5b942; }
"""


def svg(run: Run) -> str:
    """For each measure a bar for each design, ours last."""
    rows = [row for row in rows_of(run) if row.compared in TITLES.values()]
    height = _TOP + sum(_HEAD + len(row.figures) * _BAR + _MARGIN for row in rows)
    title = "onecharge beside the designs that people copy: shorter is better"
    body = [f'<text x="{_MARGIN}" y="44">the line is what onecharge is not to exceed</text>']
    y = _TOP
    for row in rows:
        body.extend(_bars(row, y))
        y += _HEAD + len(row.figures) * _BAR + _MARGIN
    return svg_page(title, _WIDTH, height, (_LIGHT, _DARK), body)


def _bars(row: Row, top: int) -> Iterator[str]:
    """The measure's name, a bar for each design, and the line."""

    def length(share: float) -> float:
        return min(share, _LONGEST) * _SCALE / _LONGEST

    first, bottom = top + _HEAD, top + _HEAD + len(row.figures) * _BAR
    yield f'<text class="what" x="{_MARGIN}" y="{top + 14}">{escape(row.what)}</text>'
    for number, (design, figure) in enumerate(row.figures.items()):
        y, share = first + number * _BAR, figure / row.base
        kind, cut = "ours" if design == OURS else "other", " (cut)" if share > _LONGEST else ""
        yield f'<text x="{_MARGIN + 12}" y="{y + 11}">{escape(TITLES[design])}</text>'
        yield f'<rect class="{kind}" x="{_LABELS}" y="{y}" width="{length(share):.1f}" height="{_BAR - 3}" rx="2"/>'
        yield f'<text x="{_LABELS + _SCALE + 8}" y="{y + 11}">{row.cell(design)}{cut}</text>'
    if row.to_hold:
        x = _LABELS + length(row.to_hold)
        yield f'<line class="hold" x1="{x:.1f}" x2="{x:.1f}" y1="{first - 2}" y2="{bottom}"/>'
