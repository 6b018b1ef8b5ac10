"""`make specification`: explores charges and refunds within bounds, leaves out each rule, and prints what it finds."""

import sys
from collections.abc import Iterator

from lab.processes import pool as pool_of
from lab.specification.bounds import GATE, MUTANTS, NIGHTLY, NOT_NEEDED, Job, described, explored
from lab.specification.explore import Exploration
from local.arguments import Arguments, at_least, until_stopped


def _run(job: Job) -> tuple[Job, Exploration]:
    rule, left = job
    return job, explored(left, rule)


def _explored(title: str, jobs: list[Job], processes: int) -> Iterator[Exploration]:
    print(title, flush=True)
    with pool_of(processes, "fork") as pool:
        for (rule, left), found in pool.imap(_run, jobs):
            name = f"{rule}: {described(left)}" if rule else described(left)
            what = found.violation or "no violation"
            print(f"  {name}\n    {found.states:>9,} states, {found.seconds:.0f} s: {what}", flush=True)
            yield found


def main() -> int:
    """0 if the promises hold, and each rule that the promise needs is missed."""
    parser = Arguments(prog="make specification", description=__doc__)
    parser.add_argument("--processes", type=at_least(1, "--processes"), default=2)
    processes, wrong = parser.parse_args().processes, 0
    for found in _explored("Every state:", [("", left) for left in GATE + NIGHTLY], processes):
        wrong += bool(found.violation)
        print(*(f"      {label}" for label in found.timeline), sep="\n", end="\n" if found.timeline else "")
    for found in _explored("A rule left out, which has to be noticed:", MUTANTS, processes):
        wrong += not found.violation
    for found in _explored("A rule left out that the money does not need:", NOT_NEEDED, processes):
        wrong += bool(found.violation)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(until_stopped(main))
