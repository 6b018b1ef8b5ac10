"""Every state within bounds: none may break the promise, and from each an end can be reached."""

import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

Rules = frozenset[str]


class Model(Protocol):
    """The charge protocol, or refunds: a module with these functions."""

    def first(self, left: Any, /) -> Any: ...

    def steps(self, s: Any, broken: Rules, /) -> Iterator[tuple[str, Any]]: ...

    def violation(self, s: Any, /) -> str: ...

    def is_end(self, s: Any, /) -> bool: ...


def use(s: Any, what: str) -> Any:
    """The state after this has happened once more; None if it cannot. `left` says how often."""
    times: int = getattr(s.left, what)
    return s._replace(left=s.left._replace(**{what: times - 1})) if times else None


def replaced[T](values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])


@dataclass(frozen=True)
class Exploration:
    states: int
    violation: str = ""
    timeline: list[str] = field(default_factory=list)
    seconds: float = 0.0


def explore(model: Model, left: object, broken: Rules = frozenset(), *, states_max: int = 10**7) -> Exploration:
    """Breadth first, so that a timeline is as short as any. Raises OverflowError if there are more states than that."""
    began, first = time.monotonic(), model.first(left)
    number, order = {first: 0}, [first]
    parents, labels, sources, targets = array("l", [0]), [""], array("l"), array("l")

    def ended(what: str, index: int) -> Exploration:
        timeline, states = list[str](), len(order)
        while index:
            timeline, index = [labels[index], *timeline], parents[index]
        return Exploration(states, what, timeline, time.monotonic() - began)

    for place, state in enumerate(order):
        for label, after in model.steps(state, broken):
            index = number.setdefault(after, len(order))
            if index == len(order):
                order.append(after)
                parents.append(place)
                labels.append(label)
                if what := model.violation(after):
                    return ended(what, index)
            sources.append(place)
            targets.append(index)
        if place > states_max:
            raise OverflowError(f"more than {states_max:,} states")
    can_end, changed = bytearray(map(model.is_end, order)), True
    while changed:
        changed = False
        for edge in range(len(sources) - 1, -1, -1):
            if can_end[targets[edge]] and not can_end[sources[edge]]:
                can_end[sources[edge]] = changed = True
    stuck = can_end.find(0)
    return ended("it can never end", stuck) if stuck >= 0 else ended("", 0)
