"""What a run of `make bench` has found, and the rows that say of each target whether it is reached."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.speed.measure import STRIPE_SECONDS, Figures, Requests, Spread, ratios

RESULTS = Path(__file__).with_name("results.json")
CHARGES_AGAIN = "charges again"
"""What a duplicate does to a design that does not know it."""
OURS, PEER, USUAL, LIBRARIES = "onecharge", "powertools_batch", "usual", "libraries"
TITLES = {
    "naive": "get, charge, put",
    PEER: "Powertools",
    "powertools_async": "Powertools, async",
    "durable": "durable function",
    "floor": "the floor",
    USUAL: "the usual module",
    "usual-by-sam": "the usual module, by plain `sam build`",
    LIBRARIES: "its libraries alone",
    OURS: "onecharge",
}


@dataclass(frozen=True)
class Run:
    """All that was measured, before any comparison."""

    at: str
    machine: str
    rounds: int
    versions: Mapping[str, str]
    figures: Mapping[str, Figures]
    cold: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Milliseconds to the first claim, by function."""
    memory: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The highest memory in MB, by function, then by the number of orders."""
    megabytes: Mapping[str, float] = field(default_factory=dict)
    """What is deployed, unzipped: onecharge's function with its layers; the usual module."""
    dollars: Mapping[str, float] = field(default_factory=dict)
    """For a million orders, by list prices."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def of_json(cls, text: str) -> "Run":
        values: dict[str, Any] = json.loads(text)
        values["figures"] = {
            name: Figures(Requests(**each["fresh"]), Requests(**each["duplicate"]), each["times"])
            for name, each in values["figures"].items()
        }
        return cls(**values)


@dataclass(frozen=True)
class Row:
    """One target: what was measured, ours and theirs, what is to be reached, and whether it is."""

    what: str
    others: Mapping[str, str]
    ours: str
    compared: str
    """Ours by the peer, or ours itself where the target is no ratio."""
    target: str
    reached: bool | None
    """None where nothing is to be reached, or nothing was measured."""


def rows_of(run: Run) -> list[Row]:
    """The table."""
    return [
        _fresh_wall(run),
        _ratio(run, "CPU, fresh, per Stripe request", "fresh_cpu", 0.7, per_request=True),
        _ratio(run, "CPU, duplicates", "duplicate_cpu", 0.6),
        _ratio(run, "wall time, duplicates", "duplicate_wall", 0.25),
        *_requests(run),
        *([_cold(run)] if run.cold else []),
        *(_memory(run) if run.memory else []),
        *([_size(run)] if run.megabytes else []),
        *([_dollars(run)] if run.dollars else []),
    ]


def _shown(spread: Spread, digits: int = 1, unit: str = " ms") -> str:
    """The median, and the quartiles."""
    return f"{spread.median:,.{digits}f}{unit} ({spread.low:,.{digits}f} to {spread.high:,.{digits}f})"


def stripe_calls(figures: Figures) -> float:
    """Requests to Stripe of one fresh order, which it makes one after the other."""
    return figures.fresh.stripe / 10


def wall_in_calls(figures: Figures) -> Spread:
    """Wall time of ten fresh orders, by what Stripe takes for the requests of one order, one after the other."""
    one = stripe_calls(figures) * STRIPE_SECONDS * 1000
    return Spread.of([each / one for each in figures.times["fresh_wall"]])


def _fresh_wall(run: Run) -> Row:
    others = {
        name: f"{_shown(wall_in_calls(each), 2, '')} x {stripe_calls(each):g} request"
        for name, each in run.figures.items()
        if name != OURS
    }
    ours = run.figures[OURS]
    found = wall_in_calls(ours)
    return Row(
        "wall time by Stripe's for one order",
        others,
        f"{_shown(found, 2, '')} x {stripe_calls(ours):g} requests",
        f"{found.median:.2f}",
        "≤ 1.15",
        found.median <= 1.15,
    )


def _ratio(run: Run, what: str, name: str, target: float, *, per_request: bool = False) -> Row:
    def figures_of(variant: str) -> list[float]:
        figures = run.figures[variant]
        divisor = figures.fresh.stripe if per_request else 1
        return [each / divisor for each in figures.times[name]]

    is_second = name.startswith("duplicate")
    found = ratios(figures_of(OURS), figures_of(PEER))
    digits = 2 if per_request else 1
    return Row(
        what,
        {
            each: CHARGES_AGAIN if is_second and asked.duplicate.stripe else _shown(Spread.of(figures_of(each)), digits)
            for each, asked in run.figures.items()
            if each != OURS
        },
        _shown(Spread.of(figures_of(OURS)), digits),
        f"{_shown(found, 2, '')}",
        f"≤ {target}",
        found.median <= target,
    )


def _requests(run: Run) -> list[Row]:
    def units(requests: Requests, made: int) -> str:
        return f"{made / 10:g} ({requests.write_units / 10:g} WCU, {requests.read_units / 10:g} RCU)"

    def theirs(requests: Requests) -> str:
        checkpoints = f", and {requests.other / 10:g} checkpoints" if requests.other else ""
        return units(requests, requests.dynamodb) + checkpoints

    def row(what: str, kind: str, target: int) -> Row:
        asked: dict[str, Requests] = {name: getattr(each, kind) for name, each in run.figures.items()}
        ours = asked.pop(OURS)
        others = {name: theirs(each) for name, each in asked.items()}
        made = ours.dynamodb + ours.other  # The others take the slots of Stripe's limit.
        return Row(what, others, units(ours, made), f"{made / 10:g}", f"≤ {target}", made <= target * 10)

    return [
        row("DynamoDB requests an order", "fresh", 3),
        row("DynamoDB requests a duplicate", "duplicate", 1),
    ]


def _cold(run: Run) -> Row:
    found = ratios(run.cold[OURS], run.cold[USUAL])
    return Row(
        "process start to first claim, as built",
        {name: _shown(Spread.of(each), 0) for name, each in run.cold.items() if name != OURS},
        _shown(Spread.of(run.cold[OURS]), 0),
        _shown(found, 2, ""),
        "≤ 0.65",
        found.median <= 0.65,
    )


def _memory(run: Run) -> list[Row]:
    ours, theirs = run.memory[OURS], run.memory[PEER]
    compared = ours["1000"] / theirs["1000"]
    last = list(ours)[-1]
    growth = ours[last] - ours["1000"]
    return [
        Row(
            "peak memory after 1,000 orders",
            {name: f"{each['1000']:.1f} MB" for name, each in run.memory.items() if name != OURS},
            f"{ours['1000']:.1f} MB",
            f"{compared:.2f}",
            "≤ 0.8",
            compared <= 0.8,
        ),
        Row(
            f"its growth from 1,000 to {int(last):,} orders",
            {},
            f"{growth:+.1f} MB",
            f"{growth:+.1f} MB",
            "none (below 1 MB)",
            growth < 1,
        ),
    ]


def _size(run: Run) -> Row:
    ours = run.megabytes[OURS]
    others = {name: f"{each:.1f} MB" for name, each in run.megabytes.items() if name != OURS}
    return Row(
        "built, unzipped, function and layers", others, f"{ours:.1f} MB", f"{ours:.1f} MB", "≤ 45 MB", ours <= 45
    )


def _dollars(run: Run) -> Row:
    ours, theirs = run.dollars[OURS], run.dollars["naive"]
    compared = ours / theirs
    return Row(
        "dollars for a million orders",
        {name: f"${each:.2f}" for name, each in run.dollars.items() if name != OURS},
        f"${ours:.2f}",
        f"{compared:.2f}",
        "≤ 0.5",
        compared <= 0.5,
    )
