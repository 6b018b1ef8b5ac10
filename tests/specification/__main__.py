"""python -m tests.specification: explores the protocol within its bounds, breaks each rule, and prints what was found.

`--bounds "crash=ANY, cancel=1"` explores bounds of one's own, up to `--states` (a capped run is INCOMPLETE: no proof).
"""

import argparse
import sys
import time
from collections.abc import Iterator
from multiprocessing import Pool

from tests.specification.bounds import COMPLETE, MUTANTS, REDUNDANT, WALKS
from tests.specification.explore import Exploration, explore, walk_all
from tests.specification.protocol import NONE_BROKEN, Rules
from tests.specification.world import ANY, Left

Job = tuple[Left, Rules, int]


def describe(left: Left) -> str:
    """Bounds as one would write them."""
    values = left._asdict().items()
    shown = [f"{name}={'ANY' if value == ANY else value}" for name, value in values if value != Left()._asdict()[name]]
    return ", ".join(shown) or "-"


def _run(job: Job) -> tuple[Job, Exploration, float]:
    left, broken, states_max = job
    began = time.monotonic()
    return job, explore(left, broken, states_max=states_max), time.monotonic() - began


def _lines(jobs: list[Job], processes: int) -> Iterator[tuple[str, Exploration]]:
    with Pool(processes) as pool:
        for (left, broken, _), found, seconds in pool.imap(_run, jobs):
            extent = "complete" if found.is_complete else "stopped" if found.violation else "INCOMPLETE"
            rule = "".join(f"{each}: " for each in broken)
            what = found.violation or "no violation"
            yield f"{rule}{describe(left)}\n    {found.states:>9,} states, {extent}, {seconds:.1f} s: {what}", found


def main() -> int:
    """0 if the protocol is unbroken, and everything broken is caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.specification", description=__doc__)
    parser.add_argument("--bounds", help="bounds of your own, as in Left")
    parser.add_argument("--states", type=int, default=10**9, help="stop after so many states")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.bounds:
        pairs = (each.split("=") for each in options.bounds.replace(" ", "").split(","))
        left = Left(**{name: ANY if value == "ANY" else int(value) for name, value in pairs})
        (line, found), *_ = _lines([(left, NONE_BROKEN, options.states)], 1)
        print(line, *found.timeline, sep="\n        ")
        return found.violation is not None
    failures = 0
    print("The protocol, every state:")
    for line, found in _lines([(left, NONE_BROKEN, options.states) for left in COMPLETE], options.processes):
        failures += found.violation is not None
        print(line, *found.timeline, sep="\n        ", flush=True)
    for left, count in WALKS:
        steps, what, timeline = walk_all(left, count)
        failures += what is not None
        print(
            f"{describe(left)}\n    {count:,} random walks, {steps:,} steps: {what or 'no violation'}",
            *timeline,
            sep="\n        ",
        )
    print("Broken in one place:")
    for line, found in _lines(
        [(left, frozenset({rule}), options.states) for rule, left in MUTANTS.items()], options.processes
    ):
        failures += found.violation is None
        print(line, flush=True)
    print("Rules that the promise does not need, left out:")
    redundant = [(left, frozenset({rule}), options.states) for rule, (left, _) in REDUNDANT.items()]
    for line, found in _lines(redundant, options.processes):
        failures += found.violation is not None
        print(line, flush=True)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
