"""The schedule that catches each mutant: found once, stored, and tried first.

A change of the protocol shifts what a schedule chooses, so a stored one may catch its mutant no more. Then schedules of
its scenario are searched, which takes seconds instead of milliseconds; `make mutants WRITE=1` stores what was found,
and `make mutants SEED=` searches other schedules.
"""

import json
import os
from pathlib import Path

from lab.simulation.explore import world_of
from lab.simulation.mutants import MUTANTS
from lab.simulation.world import violation_of

_FILE = Path(__file__).with_name("stored.json")


def is_caught(kind: str, name: str, *, schedules: int) -> bool:
    """Whether the schedule that is stored for the mutant catches it, or else one of so many of its scenario."""
    seed = int(os.environ.get("MUTANTS_SEED", "1"))
    everything: dict[str, dict[str, str]] = json.loads(_FILE.read_text())
    mutants = everything.setdefault(kind, {})
    scenario, _, stored = mutants.get(name, ":0").rpartition(":")
    for number in (int(stored), *range(schedules)):
        if violation := violation_of(world_of(kind, seed, number, MUTANTS[kind][name], of=scenario or None)):
            print(f"{kind}, {name}: {violation.what} ({scenario}, SEED={seed}:{number})")
            if os.environ.get("STORE_SCHEDULES"):
                mutants[name] = f"{scenario}:{number}"
                _FILE.write_text(json.dumps(everything, indent=2) + "\n")
            return True
    return False
