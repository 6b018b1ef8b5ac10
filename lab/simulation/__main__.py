"""`make simulate`: random schedules, and one line of JSON that says what came of them.

A violation prints its name, `seed:number`, then its timeline; `SEED=seed:number` replays that one schedule, to the
byte. A fifth as many are of both services (seams.py), and as many of refunds (refunding.py); `SCENARIO=` names one
scenario, or `charges`, `seams` or `refunds` for all of a kind, and runs no others.
"""

import json
import random
import sys
from contextlib import nullcontext
from functools import partial

from lab.processes import pool as pool_of
from lab.simulation.explore import KINDS, Findings, explored, world_of
from lab.simulation.world import Violation, violation_of
from local.arguments import Arguments, at_least, seed_or_schedule, until_stopped

_CHUNK = 100
_KIND_OF = {name: kind for kind in KINDS for name in (kind, *KINDS[kind].scenarios)}


def replay(kind: str, seed: int, number: int, of: str | None) -> int:
    """Run that one schedule, and show it whether it violates anything or not."""
    world = world_of(kind, seed, number, of=of)
    violation = violation_of(world)
    print(violation or Violation("no violation", world.timeline))
    return 0 if violation is None else 1


def explore(schedules: int, kind: str, *, seed: int, processes: int, of: str | None) -> Findings:
    """All of them; the same ones on any number of processes."""
    findings = Findings()
    chunks = [range(first, min(first + _CHUNK, schedules)) for first in range(0, schedules, _CHUNK)]
    run = partial(explored, kind=kind, seed=seed, of=of)
    with pool_of(processes) if processes > 1 else nullcontext() as pool:
        for found in pool.imap(run, chunks) if pool else map(run, chunks):
            findings += found
    return findings


def main() -> int:
    parser = Arguments(prog="make simulate", description=__doc__)
    parser.add_argument("--schedules", type=at_least(1, "SCHEDULES"), default=10_000)
    parser.add_argument(
        "--seed", type=seed_or_schedule, default=(None, None), help="seed, or seed:number to replay one"
    )
    parser.add_argument("--scenario", choices=_KIND_OF, metavar="SCENARIO", help="only schedules of this one, or kind")
    parser.add_argument("--processes", type=at_least(1, "PROCESSES"), default=1)
    options = parser.parse_args()
    (seed, number), only = options.seed, options.scenario
    of = None if only in KINDS else only
    if number is not None:
        return replay(_KIND_OF[only or "charges"], seed, number, of)
    seed = seed if seed is not None else random.SystemRandom().randrange(10**6)
    found = {}
    for kind in [_KIND_OF[only]] if only else KINDS:
        schedules = options.schedules if only or kind == "charges" else -(-options.schedules // 5)
        found[kind] = explore(schedules, kind, seed=seed, processes=options.processes, of=of)
        for name, violation in found[kind].violations[:3]:
            print(f"SCENARIO={only or kind!r} SEED={name}\n{violation}", file=sys.stderr)
    print(json.dumps({**{kind: each.as_json() for kind, each in found.items()}, "seed": seed}))
    return int(any(each.violations for each in found.values()))


if __name__ == "__main__":
    sys.exit(until_stopped(main))
