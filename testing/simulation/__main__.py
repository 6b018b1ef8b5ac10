"""`make simulate`: random schedules, and one line of JSON that says what came of them.

A violation prints its name, `seed:number`, and the shortest timeline that was found for it; `SEED=seed:number`
replays that one schedule, to the byte. `make mutants` breaks the protocol in one place after the other, and says after
how many schedules each was caught. A fifth of the schedules are of both services (seams.py); `SCENARIO=` names one of
their scenarios, or `seams` for all, and runs no others. `--attacks` runs the worlds in which clocks differ, rows are
lost or stale at any step, and Stripe is at its worst, and counts the violations of each.
"""

import json
import multiprocessing
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from testing.arguments import Arguments, at_least, seed_or_schedule
from testing.simulation.explore import Findings, caught, minimal, random_chunk, random_world
from testing.simulation.mutants import MUTANTS
from testing.simulation.scenarios import ATTACKS
from testing.simulation.seams import SCENARIOS as SEAMS
from testing.simulation.seams import seam_world, seams_chunk
from testing.simulation.seams import violation_of as violation_of_seams
from testing.simulation.world import Scenario, Violation

_CHUNK = 1000
_SCHEDULES_FOR_A_MUTANT = 50_000


def replay(seed: int, number: int, of: Sequence[Scenario] | None) -> int:
    """Run that one schedule, and show it whether it violates anything or not."""
    world = random_world(seed, number, of=of)
    try:
        world.run()
    except Violation as violation:
        print(violation)
        return 1
    print(Violation("no violation", world.timeline))
    return 0


def in_chunks[Found](
    run: Callable[[tuple[int, int]], Found], schedules: int, processes: int, *, of_chunk: int, what: str
) -> Iterator[Found]:
    """What each chunk comes to, its first number and how many; with a bar on a terminal, on so many processes."""
    console = Console(stderr=True)
    chunks = [(first, min(of_chunk, schedules - first)) for first in range(0, schedules, of_chunk)]
    with (
        Progress(console=console, disable=not console.is_terminal, transient=True) as progress,
        multiprocessing.get_context("spawn").Pool(processes) if processes > 1 else nullcontext() as pool,
    ):
        bar = progress.add_task(what, total=len(chunks))
        for found in pool.imap(run, chunks) if pool else map(run, chunks):
            yield found
            progress.advance(bar)


def explore(schedules: int, seed: int, of: Sequence[Scenario] | None = None, processes: int = 1) -> Findings:
    """All of them; the same ones on any number of processes."""
    findings, started = Findings(), time.perf_counter()
    run = partial(random_chunk, seed=seed, of=of)
    for found in in_chunks(run, schedules, processes, of_chunk=_CHUNK, what="schedules"):
        findings += found
    findings.seconds = time.perf_counter() - started
    return findings


def kinds(findings: Findings) -> dict[str, dict[str, int]]:
    """For each attacked world its violations, by what was violated."""
    counted: dict[str, Counter[str]] = {name: Counter() for name in ATTACKS}
    names = list(ATTACKS)
    for schedule, violation in findings.violations:
        world = names[int(schedule.partition(":")[2]) % len(names)]
        counted[world][re.sub(r"ord_\w+|\d+:\d+|evt_\w+", "an order", violation.what)] += 1
    return {name: dict(each.most_common()) for name, each in counted.items()}


def report_mutants(seed: int) -> int:
    """Each mutation, the schedules that it took to catch it, and the invariant that it broke."""
    table = Table("mutation of the protocol", "caught after", "by", title=f"seed {seed}")
    missed = 0
    for name, mutate in MUTANTS.items():
        findings = caught(_SCHEDULES_FOR_A_MUTANT, seed, mutate)
        missed += not findings.violations
        what = findings.violations[0][1].what if findings.violations else "nothing"
        table.add_row(name, f"{findings.schedules:,}" if findings.violations else "never", what[:70])
    Console(width=150 if not sys.stdout.isatty() else None).print(table)
    return 1 if missed else 0


def explore_seams(schedules: int, seed: int, of: str | None, processes: int = 1) -> dict[str, object]:
    """Schedules of both services; prints each violation."""
    violations = 0
    run = partial(seams_chunk, seed=seed, of=of)
    for found in in_chunks(run, schedules, processes, of_chunk=_CHUNK // 10, what="schedules of both services"):
        violations += len(found)
        for each in found:
            print(each, file=sys.stderr)
    return {"schedules": schedules, "violations": violations}


def replay_seams(seed: int, number: int, of: str | None) -> int:
    """Run that one schedule, and show it whether it violates anything or not."""
    world = seam_world(number, of=of, seed=seed)
    violation = violation_of_seams(world)
    print(violation or Violation("no violation", world.timeline))
    return 0 if violation is None else 1


def main() -> int:
    parser = Arguments(prog="make simulate", description=__doc__)
    parser.add_argument("--schedules", type=at_least(1, "SCHEDULES"), default=10_000)
    parser.add_argument(
        "--seed", type=seed_or_schedule, default=(None, None), help="seed, or seed:number to replay one"
    )
    parser.add_argument("--scenario", choices=("seams", *SEAMS), help="only schedules of both services")
    parser.add_argument("--mutants", action="store_true", help="break the protocol, and see that it is caught")
    parser.add_argument("--attacks", action="store_true", help="the worlds in which nothing is to be relied on")
    parser.add_argument("--processes", type=at_least(1, "PROCESSES"), default=1)
    options = parser.parse_args()
    seed, number = options.seed
    if options.mutants and number is not None:
        parser.error(f"SEED={seed}:{number} names one schedule; mutants need many: SEED={seed}")
    of = tuple(ATTACKS.values()) if options.attacks else None
    of_seams = None if options.scenario == "seams" else options.scenario
    if number is not None and options.scenario:
        return replay_seams(seed, number, of_seams)
    if number is not None:
        return replay(seed, number, of)
    seed = seed if seed is not None else random.SystemRandom().randrange(10**6)
    if options.mutants:
        return report_mutants(seed)
    if options.scenario:
        seams = explore_seams(options.schedules, seed, of_seams, options.processes)
        print(json.dumps({**seams, "seed": seed}))
        return 1 if seams["violations"] else 0
    findings = explore(options.schedules, seed, of, options.processes)
    seams = {} if options.attacks else explore_seams(options.schedules // 5, seed, None, options.processes)
    for name, violation in [] if options.attacks else findings.violations[:3]:
        print(f"SEED={name} (shortened from {len(violation.timeline)} lines) {minimal(name)}", file=sys.stderr)
    also = {"attacks": kinds(findings)} if options.attacks else {"seams": seams}
    print(json.dumps(findings.as_json(seed) | also))
    return 1 if findings.violations or seams.get("violations") else 0


if __name__ == "__main__":
    sys.exit(main())
