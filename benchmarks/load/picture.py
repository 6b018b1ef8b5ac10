"""Latency over time as a plain SVG for light and dark pages: a point for each order, on a logarithmic scale."""

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from benchmarks.load.figures import Figures, Latencies
from benchmarks.load.open_loop import Sent

_WIDTH, _HEIGHT = 860, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 76, 46
_STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .page { fill: #ffffff; }
  .grid { stroke: #d8dee4; }
  .axis { text-anchor: end; }
  .below { text-anchor: middle; }
  .answer { fill: #1565c0; } .paid { fill: #1a7f37; } .error { fill: #c62828; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .page { fill: #0d1117; }
    .grid { stroke: #30363d; }
    .answer { fill: #6cb6ff; } .paid { fill: #57b36b; } .error { fill: #ff7b72; }
  }
"""


def svg(requests: Sequence[Sent], figures: Figures) -> str:
    """When a request was due is its place from left to right, how long it took its height."""
    began = min((each.due for each in requests), default=0)
    points = [(each.due - began, kind, seconds) for each in requests for kind, seconds in _latencies(each)]
    lowest, highest = _decades([seconds for _, _, seconds in points])
    span = max(figures.seconds, 1)

    def x(at: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * at / span

    def y(seconds: float) -> float:
        share = (math.log10(max(seconds, 10.0**lowest)) - lowest) / (highest - lowest)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share

    title = f"{figures.offered_rate:g} orders a second for {figures.seconds} s, on the local stack"
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title)}</title>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text class="title" x="16" y="26">{escape(title)}</text>',
        *_legend(figures),
    ]
    for decade in range(lowest, highest + 1):
        height = y(10.0**decade)
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>')
        lines.append(f'<text class="axis" x="{_LEFT - 8}" y="{height + 4:.1f}">{_duration(10.0**decade)}</text>')
    for quarter in range(5):
        at = span * quarter / 4
        lines.append(f'<text class="below" x="{x(at):.1f}" y="{_HEIGHT - _BOTTOM + 18}">{at:g} s</text>')
    lines.append(f'<text class="below" x="{_WIDTH / 2}" y="{_HEIGHT - 8}">when the order was due</text>')
    lines += [f'<circle class="{kind}" cx="{x(at):.1f}" cy="{y(took):.1f}" r="2.5"/>' for at, kind, took in points]
    return "\n".join([*lines, "</svg>", ""])


def _latencies(request: Sent) -> Iterator[tuple[str, float]]:
    if request.answered is not None:
        yield "error" if request.error else "answer", request.answered - request.due
    if request.paid is not None:
        yield "paid", request.paid - request.due


def _decades(seconds: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around all values, at least one decade."""
    positive = [each for each in seconds if each > 0] or [1.0]
    lowest = math.floor(math.log10(min(positive)))
    return lowest, max(math.ceil(math.log10(max(positive))), lowest + 1)


def _legend(figures: Figures) -> Iterator[str]:
    rows = [("answer", "POST to 202", figures.to_answer), ("paid", "POST to PAID", figures.to_paid)]
    for number, (kind, name, latencies) in enumerate(rows):
        left = 16 + number * 340
        yield f'<circle class="{kind}" cx="{left + 5}" cy="46" r="4"/>'
        yield f'<text x="{left + 16}" y="50">{name}: {escape(in_words(latencies))}</text>'
    if figures.errors:
        yield '<circle class="error" cx="701" cy="46" r="4"/>'
        yield f'<text x="712" y="50">{sum(figures.errors.values())} errors</text>'


def in_words(latencies: Latencies) -> str:
    """`p50 120 ms, p99 1.2 s, max 1.3 s`."""
    parts = (("p50", latencies.p50), ("p99", latencies.p99), ("max", latencies.max))
    return ", ".join(f"{name} {_duration(seconds)}" for name, seconds in parts if seconds is not None) or "none"


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
