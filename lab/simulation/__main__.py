"""`make simulate`: random schedules, and one line of JSON that says what came of them.

A violation prints its name, `seed:number`, and of the shortest schedule that was found for it what was out of the
ordinary, then its timeline; `SEED=seed:number`
replays that one schedule, to the byte. `make mutants` breaks the protocol in one place after the other, and says after
how many schedules each was caught. A fifth as many are of both services (seams.py), and as many of refunds
(refunding.py); `SCENARIO=` names one of their scenarios, or `seams` or `refunds` for all, and runs no others.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from lab.processes import pool as pool_of
from lab.simulation.explore import Findings, caught, explored, minimal, random_world
from lab.simulation.mutants import MUTANTS
from lab.simulation.refunding import SCENARIOS as REFUNDS
from lab.simulation.refunding import refund_world
from lab.simulation.seams import SCENARIOS as SEAMS
from lab.simulation.seams import seam_world
from lab.simulation.world import Schedule, Violation, violation_of
from local.arguments import Arguments, at_least, seed_or_schedule, until_stopped

_CHUNK = 100
_SCHEDULES_FOR_A_MUTANT = 50_000


def replay(world: Schedule) -> int:
    """Run that one schedule, and show it whether it violates anything or not."""
    violation = violation_of(world)
    print(violation or Violation("no violation", world.timeline, world.unusual))
    return 0 if violation is None else 1


def of_both_services(seed: int, of: str | None) -> Mapping[str, Callable[[int], Schedule]]:
    """The schedules of seams and of refunds by their numbers; of one scenario, if it is given."""
    seams: Callable[..., Schedule] = partial(seam_world, seed=seed)
    refunds: Callable[..., Schedule] = partial(refund_world, seed)
    if of is None:
        return {"seams": seams, "refunds": refunds}
    kind = "seams" if of == "seams" or of in SEAMS else "refunds"
    make = {"seams": seams, "refunds": refunds}[kind]
    return {kind: make if of == kind else partial(make, of=of)}


def explore(schedules: int, make: Callable[[int], Schedule], *, seed: int, processes: int) -> Findings:
    """All of them, with a bar on a terminal; the same ones on any number of processes."""
    findings, started, console = Findings(), time.perf_counter(), Console(stderr=True)
    chunks = [range(first, min(first + _CHUNK, schedules)) for first in range(0, schedules, _CHUNK)]
    run = partial(explored, make=make, seed=seed)
    with (
        Progress(console=console, disable=not console.is_terminal, transient=True) as progress,
        pool_of(processes) if processes > 1 else nullcontext() as pool,
    ):
        bar = progress.add_task("schedules", total=len(chunks))
        for found in pool.imap(run, chunks) if pool else map(run, chunks):
            findings += found
            progress.advance(bar)
    findings.seconds = time.perf_counter() - started
    return findings


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


def main() -> int:
    parser = Arguments(prog="make simulate", description=__doc__)
    parser.add_argument("--schedules", type=at_least(1, "SCHEDULES"), default=10_000)
    parser.add_argument(
        "--seed", type=seed_or_schedule, default=(None, None), help="seed, or seed:number to replay one"
    )
    names = ("seams", "refunds", *SEAMS, *REFUNDS)
    parser.add_argument("--scenario", choices=names, help="only schedules of both services")
    parser.add_argument("--mutants", action="store_true", help="break the protocol, and see that it is caught")
    parser.add_argument("--processes", type=at_least(1, "PROCESSES"), default=1)
    options = parser.parse_args()
    seed, number = options.seed
    if options.mutants and number is not None:
        parser.error(f"SEED={seed}:{number} names one schedule; mutants need many: SEED={seed}")
    if number is not None and options.scenario:
        [make] = of_both_services(seed, options.scenario).values()
        return replay(make(number))
    if number is not None:
        return replay(random_world(seed, number))
    seed = seed if seed is not None else random.SystemRandom().randrange(10**6)
    if options.mutants:
        return report_mutants(seed)
    run = partial(explore, seed=seed, processes=options.processes)
    charges = Findings() if options.scenario else run(options.schedules, partial(random_world, seed))
    for name, violation in charges.violations[:3]:
        print(f"SEED={name} (shortened from {len(violation.timeline)} lines) {minimal(name)}", file=sys.stderr)
    others = {}
    for kind, make in of_both_services(seed, options.scenario).items():
        others[kind] = run(options.schedules if options.scenario else options.schedules // 5, make)
        for name, violation in others[kind].violations:
            print(f"SCENARIO={options.scenario or kind!r} SEED={name}\n{violation}", file=sys.stderr)
    found = {kind: each.as_json() for kind, each in others.items()}
    print(json.dumps({**(found if options.scenario else {**charges.as_json(), **found}), "seed": seed}))
    return 1 if charges.violations or any(each.violations for each in others.values()) else 0


if __name__ == "__main__":
    sys.exit(until_stopped(main))
