"""The schedule that catches each mutant: found once, stored, and tried first.

A change of the protocol shifts what a schedule chooses, so a stored one may catch its mutant no more. Then schedules of
its scenario are searched, which takes seconds instead of milliseconds; `make mutants WRITE=1` stores what was found.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

from lab.simulation.world import Schedule, violation_of

_FILE = Path(__file__).with_name("stored.json")


def is_caught(kind: str, name: str, make: Callable[[str | None, int], Schedule], *, schedules: int) -> bool:
    """Whether the schedule that is stored for the mutant catches it, or else one of as many of its scenario.

    Args:
        kind: what is broken, such as charges, refunds or reviews.
        name: the mutant's.
        make: the broken world of that number, in this scenario or in any.
    """
    everything: dict[str, dict[str, str]] = json.loads(_FILE.read_text())
    mutants = everything.setdefault(kind, {})
    scenario, _, stored = mutants.get(name, ":0").rpartition(":")
    for number in (int(stored), *range(schedules)):
        if violation_of(make(scenario or None, number)):
            if os.environ.get("STORE_SCHEDULES"):
                mutants[name] = f"{scenario}:{number}"
                _FILE.write_text(json.dumps(everything, indent=2) + "\n")
            return True
    return False
