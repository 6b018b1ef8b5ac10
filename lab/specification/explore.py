"""Every state within bounds: none may break the promise, and from each an end can be reached."""

import time
from array import array
from dataclasses import dataclass, field

from lab.specification.protocol import Rules, is_held, steps
from lab.specification.world import FINAL, FRESH, KEYS, Left, State, Worker, violation

INTENTS = 4
"""PaymentIntents of one order; nothing follows a state with more."""


@dataclass(frozen=True)
class Exploration:
    states: int
    violation: str = ""
    timeline: list[str] = field(default_factory=list)
    seconds: float = 0.0


def explore(left: Left, broken: Rules = frozenset(), *, states_max: int = 10**7) -> Exploration:
    """Breadth first, so that a timeline is as short as any. Raises OverflowError if there are more states than that."""
    began, first = time.monotonic(), State(left, workers=tuple(map(Worker, left.messages)))
    number, order = {first: 0}, [first]
    parents, labels, sources, targets = array("l", [0]), [""], array("l"), array("l")

    def ended(what: str, index: int) -> Exploration:
        timeline, states = list[str](), len(order)
        while index:
            timeline, index = [labels[index], *timeline], parents[index]
        return Exploration(states, what, timeline, time.monotonic() - began)

    for place, state in enumerate(order):
        for label, after in steps(state, broken) if len(state.intents) < INTENTS else ():
            index = number.setdefault(after, len(order))
            if index == len(order):
                order.append(after)
                parents.append(place)
                labels.append(label)
                if what := violation(after):
                    return ended(what, index)
            sources.append(place)
            targets.append(index)
        if place > states_max:
            raise OverflowError(f"more than {states_max:,} states")
    can_end, changed = bytearray(map(is_end, order)), True
    while changed:
        changed = False
        for edge in range(len(sources) - 1, -1, -1):
            if can_end[targets[edge]] and not can_end[sources[edge]]:
                can_end[sources[edge]] = changed = True
    stuck = can_end.find(0)
    return ended("it can never end", stuck) if stuck >= 0 else ended("", 0)


def is_end(s: State) -> bool:
    """Settled: told, and nobody at work; or held, with an alarm and a command. A bound that is reached counts, too."""
    if len(s.intents) == INTENTS or is_held(s):
        return True
    if any(w.at not in ("waits", "done") for w in s.workers):
        return False
    if s.row is None:
        return bool(s.told)
    is_told = s.row.state in (*FINAL, "DECLINED") or bool(s.told & {*FINAL, f"DECLINED {s.row.attempt}"})
    is_last = s.time == s.left.ticks
    has_no_key = is_last and sum(index < 0 for _, _, index in s.creates) >= KEYS
    return is_told or has_no_key or (is_last and s.time - max(s.row.released, 0) < FRESH)
