"""python -m lab.specification: explores the protocol within its bounds, breaks each rule, and prints the findings.

`--bounds "crash=ANY, cancel=1"` explores bounds of one's own, up to `--states` (a capped run is INCOMPLETE: no proof).
"""

import argparse
import sys
import time
from collections.abc import Iterator

from lab.processes import pool as pool_of
from lab.specification.bounds import COMPLETE, MUTANTS, REDUNDANT, SCHEDULES, WALKS
from lab.specification.explore import Exploration, explore, follow, walk_all
from lab.specification.protocol import NONE_BROKEN, Rules
from lab.specification.states import ANY, Left, State
from local.arguments import Arguments, at_least, until_stopped

Job = tuple[Left, Rules, int, tuple[str, ...]]


def describe(left: Left) -> str:
    """Bounds as one would write them."""
    values = left._asdict().items()
    shown = [f"{name}={'ANY' if value == ANY else value}" for name, value in values if value != Left()._asdict()[name]]
    return ", ".join(shown) or "-"


def _run(job: Job) -> tuple[Job, Exploration, float]:
    left, broken, states_max, first = job
    began = time.monotonic()
    found = explore(left, broken, states_max=states_max, start=follow(State(left), first, broken))
    return job, found, time.monotonic() - began


def _lines(jobs: list[Job], processes: int) -> Iterator[tuple[str, Exploration]]:
    with pool_of(processes, "fork") as pool:
        for (left, broken, _, first), found, seconds in pool.imap(_run, jobs):
            extent = "complete" if found.is_complete else "stopped" if found.violation else "INCOMPLETE"
            rule = ", ".join(sorted(broken)) + ": " if broken else ""
            after = f", after {len(first)} steps" if first else ""
            what = found.violation or "no violation"
            yield (
                f"{rule}{describe(left)}{after}\n    {found.states:>9,} states, {extent}, {seconds:.1f} s: {what}",
                found,
            )


def bounds(text: str) -> Left:
    """BOUNDS="crash=ANY, cancel=1": how often each thing may happen that the model knows of."""
    try:
        pairs = (each.split("=") for each in text.replace(" ", "").split(","))
        return Left(**{name: ANY if value == "ANY" else int(value) for name, value in pairs})
    except (TypeError, ValueError):
        raise argparse.ArgumentTypeError(
            f'BOUNDS="{text}" has to be as "crash=ANY, cancel=1", of: {", ".join(Left._fields)}'
        ) from None


def main() -> int:
    """0 if the protocol is unbroken, and everything broken is caught."""
    parser = Arguments(prog="make specification", description=__doc__)
    parser.add_argument("--bounds", type=bounds, help="bounds of your own, as in Left")
    parser.add_argument("--states", type=at_least(1, "--states"), default=10**9, help="stop after so many states")
    parser.add_argument("--processes", type=at_least(1, "--processes"), default=2)
    options = parser.parse_args()
    if options.bounds:
        (line, found), *_ = _lines([(options.bounds, NONE_BROKEN, options.states, ())], 1)
        print(line, *found.timeline, sep="\n        ")
        return int(found.violation is not None)
    unbroken: list[Job] = [(left, NONE_BROKEN, options.states, ()) for left in COMPLETE]
    unbroken += [(left, NONE_BROKEN, options.states, first) for left, first in SCHEDULES]
    broken: list[Job] = [
        (left, frozenset(rule.split(", ")), options.states, first) for rule, (left, first) in MUTANTS.items()
    ]
    redundant: list[Job] = [
        (left, frozenset({rule}), options.states, ()) for rule, each in REDUNDANT.items() for left in each
    ]
    failures = 0
    for title, jobs, is_to_be_caught in (
        ("The protocol, every state:", unbroken, False),
        ("Broken in one place:", broken, True),
        ("Rules that the promise does not need, left out:", redundant, False),
    ):
        print(title)
        for line, found in _lines(jobs, options.processes):
            is_wrong = (found.violation is not None) != is_to_be_caught
            failures += is_wrong
            print(line, *(found.timeline if is_wrong else ()), sep="\n        ", flush=True)
    print("Random walks:")
    for left, count in WALKS:
        walked, what, timeline = walk_all(left, count)
        failures += what is not None
        print(f"{describe(left)}\n    {count:,} walks, {walked:,} steps: {what or 'no violation'}")
        print(*timeline, sep="\n        ")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(until_stopped(main))
