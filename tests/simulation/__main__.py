"""`make simulate`: random schedules, and one line of JSON that says what came of them.

A violation prints its name, `seed:number`, and its timeline; `SEED=seed:number` replays that one, to the byte.
"""

import argparse
import json
import random
import sys

from rich.console import Console
from rich.progress import Progress

from tests.simulation.explore import Findings, random_schedules, random_world
from tests.simulation.world import Violation

_CHUNK = 1000


def replay(name: str) -> int:
    """Run the one schedule of that name, and show it whatever comes of it."""
    seed, number = map(int, name.split(":"))
    world = random_world(seed, number)
    try:
        world.run()
    except Violation as violation:
        print(violation)
        return 1
    print("\n".join([*world.timeline, "no violation"]))
    return 0


def explore(schedules: int, seed: int) -> Findings:
    """All of them, in chunks, with a bar on a terminal."""
    findings = Findings()
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("schedules", total=schedules)
        while findings.schedules < schedules:
            chunk = min(_CHUNK, schedules - findings.schedules)
            findings += random_schedules(chunk, seed, first=findings.schedules)
            progress.update(bar, completed=findings.schedules)
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--seed", default=None, help="a number, or seed:number to replay one schedule")
    options = parser.parse_args()
    if options.seed and ":" in options.seed:
        return replay(options.seed)
    seed = int(options.seed) if options.seed else random.SystemRandom().randrange(10**6)
    findings = explore(options.schedules, seed)
    for name, violation in findings.violations[:3]:
        print(f"SEED={name} {violation}", file=sys.stderr)
    print(json.dumps(findings.as_json(seed)))
    return 1 if findings.violations else 0


if __name__ == "__main__":
    sys.exit(main())
