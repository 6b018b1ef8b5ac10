"""Explores the model: every state within small bounds, or random walks through larger ones."""

import random
from array import array
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from lab.specification import protocol, reconciler, review
from lab.specification.protocol import NONE_BROKEN, Rules
from lab.specification.states import Left, Row, State, Step, by_itself, starts

POINTS = protocol.POINTS | reconciler.POINTS | review.POINTS
STARTS = reconciler.STARTS | {"person": review.read_row}


def steps(s: State, broken: Rules = NONE_BROKEN) -> Iterator[Step]:
    """Every state that can follow, and what happened."""
    yield from by_itself(s)
    for started, w in starts(s):
        for label, after in STARTS[w.kind](started, w, broken):
            yield f"{w.kind}#{w.id} {label}", after
    for w in s.workers:
        for label, after in POINTS[w.at](s, w, broken):
            yield f"{w.kind}#{w.id} {label}", after


# ---------------------------------------------------------------- what must never be


def violation(s: State) -> str | None:
    """What a state shows that must never be."""
    paid = [intent for intent in s.intents if intent.status == "succeeded"]
    if len(paid) > 1:
        return "charged twice"
    if paid and "CANCELED" in s.said:
        return "CANCELED was said, and it is charged"
    if paid and any(each.startswith("stopped ") for each in s.said):
        return "a person canceled its PaymentIntent, and it is charged"
    if paid and not s.excused and s.is_given_up:
        return "Stripe has given it up after a decline, and it is charged"
    if paid and not s.excused and f"DECLINED {paid[0].attempt}" in s.said:
        return "DECLINED was said, and it is charged, for no reason that the design allows"
    if "CANCELED" in s.said and "to cancel" not in s.said:
        return "CANCELED was said, and nobody asked for it"
    if any(w.at == "confirm" and w.row.cancel_requested for w in s.workers):
        return "it was to be canceled, and a later claim confirms"
    return s.row and _violation_of_row(s, s.row, is_paid=bool(paid))


def _violation_of_row(s: State, row: Row, *, is_paid: bool) -> str | None:
    if not is_paid and row.state == "SUCCEEDED":
        return "SUCCEEDED was said, and nothing is charged"
    if is_paid and row.state == "DECLINED" and not s.excused:
        return "it is charged, and the row is DECLINED, for no reason that the design allows"
    if row.state == "NEEDS_REVIEW" and not s.said & {"refused", "stopped"}:
        return "a person is asked although nothing is wrong"
    is_asked = f"asked {row.attempt}" in s.said or s.excused or s.left.refuse or s.is_given_up
    if row.state in ("DECLINED", "REQUIRES_ACTION") and not is_asked:
        return f"an outcome was written for attempt {row.attempt}, which Stripe never executed"
    return None


def is_finished(s: State) -> bool:
    """Nobody works on it, and the row says what Stripe says."""
    if s.workers or s.row is None:
        return False
    if any(intent.status == "succeeded" for intent in s.intents):
        return s.row.state == "SUCCEEDED"
    if s.row.state == "NEEDS_REVIEW":
        return "stopped" in s.said
    return s.row.state == "CANCELED" or (s.row.state == "DECLINED" and not s.row.cancel_requested)


# ---------------------------------------------------------------- every state


@dataclass
class Exploration:
    """How many states there are within the bounds, and the shortest way to what must never be."""

    states: int = 0
    is_complete: bool = False
    violation: str | None = None
    timeline: list[str] = field(default_factory=list)


def explore(
    left: Left, broken: Rules = NONE_BROKEN, *, states_max: int = 10**9, start: State | None = None
) -> Exploration:
    """Every state that can be reached, breadth first, up to so many; then, whether each can still finish.

    A state beyond the bound on PaymentIntents is not entered, and one that it follows counts as finishable.
    """
    start, shared, is_exact = start or State(left), dict[Hashable, Hashable](), bool(broken)
    number = {canonical(start, shared, is_exact=is_exact): 0}
    waiting: list[State | None] = [start]
    parents, labels = array("L", [0]), [""]
    edges = array("L"), array("L")
    can_finish = bytearray([is_finished(start)])
    place = 0
    while place < len(waiting):
        state, waiting[place] = waiting[place], None
        assert state is not None
        for label, after in steps(state, broken):
            if len(after.intents) > left.intents:
                can_finish[place] = True
                continue
            index = number.setdefault(canonical(after, shared, is_exact=is_exact), len(waiting))
            if index == len(waiting):
                waiting.append(after)
                parents.append(place)
                labels.append(shared.setdefault(label, label))  # type: ignore[arg-type]
                can_finish.append(is_finished(after))
                if what := violation(after):
                    return Exploration(len(waiting), False, what, _timeline(index, parents, labels))
            edges[0].append(place)
            edges[1].append(index)
        place += 1
        if len(waiting) > states_max:
            return Exploration(len(waiting))
    stuck = _stuck(can_finish, *edges)
    if stuck is None:
        return Exploration(len(waiting), True)
    return Exploration(len(waiting), True, "it can never finish", _timeline(stuck, parents, labels))


def follow(state: State, labels: Iterable[str], broken: Rules = NONE_BROKEN) -> State:
    """The state after these steps."""
    for label in labels:
        state = dict(reversed(list(steps(state, broken))))[label]
    return state


def _stuck(can_finish: bytearray, sources: "array[int]", targets: "array[int]") -> int | None:
    """The first state from which no finished one can be reached."""
    changed = True
    while changed:
        changed = False
        for edge in range(len(sources) - 1, -1, -1):
            if can_finish[targets[edge]] and not can_finish[sources[edge]]:
                can_finish[sources[edge]] = changed = True
    place = can_finish.find(0)
    return None if place < 0 else place


def _timeline(index: int, parents: "array[int]", labels: list[str]) -> list[str]:
    way = []
    while index:
        way.append(labels[index])
        index = parents[index]
    return way[::-1]


# ---------------------------------------------------------------- states that differ in nothing that matters are one


def canonical(s: State, shared: dict[Hashable, Hashable], *, is_exact: bool = False) -> Hashable:
    """The state without what nobody will read again, its workers in one order, and its parts shared between states."""
    row, backup, intents, keys, said = s.row, s.backup if s.left.restore else None, s.intents, s.keys, s.said
    workers = [w if w.at in _ON_REVISION else w._replace(is_fooled=False) for w in s.workers]
    if any(map(_CHARGE, intents)):
        # Of charges it matters only which are the same one.
        rows = [each for each in (row, backup, *[w.row for w in workers]) if each]
        known = {0, *[each.declined_charge for each in rows], *[w.own.charge for w in workers if w.own]}
        known.update([intent.charge for intent in intents if not intent.is_canceled])
        rank = {charge: place for place, charge in enumerate(sorted(known))}
        intents = tuple([intent._replace(charge=rank.get(intent.charge, 0)) for intent in intents])
        row = row and row._replace(declined_charge=rank[row.declined_charge])
        backup = backup and backup._replace(declined_charge=rank[backup.declined_charge])
        workers = [
            w._replace(
                row=w.row._replace(declined_charge=rank[w.row.declined_charge]),
                own=w.own and w.own._replace(charge=rank[w.own.charge]),
            )
            for w in workers
        ]
    if len(workers) > 1:
        workers.sort(key=lambda w: (hash(w[1:]), *[each and each.lease_owner == w.id for each in (row, backup)]))
    place = {w.id: number for number, w in enumerate(workers, start=1)} | {0: 0}
    row = row and row._replace(lease_owner=place[row.lease_owner])
    backup = backup and backup._replace(lease_owner=place[backup.lease_owner])
    if s.excused:
        said = frozenset(each for each in said if each in _READ or each.startswith("stopped"))
    if keys and not is_exact:
        # A confirm's key says whether there is an answer; for a PaymentIntent that has ended, not even that.
        keys = tuple(
            [
                (key, answer if key[0] == "create" else answer in ("500", "refusal", "unexpected state"))
                for key, answer in keys
                if key[0] == "create" or intents[key[1]].status in _LIVE  # type: ignore[index]
            ]
        )
    share, ordered = shared.setdefault, tuple([w._replace(id=0) for w in workers])
    parts = (row, backup, intents, keys, s.late, ordered, said, s.left)
    return (s.is_old, s.excused, *[share(part, part) for part in parts])


_LIVE = ("new", "declined", "requires_action", "processing")
_READ = {"to cancel", "CANCELED", "REQUIRES_ACTION", "DECLINED 1", "refused"}
_ON_REVISION = ("compare", "give up", "correct", "read the row", "decide", "resolve")
_CHARGE = attrgetter("charge")


# ---------------------------------------------------------------- random walks


STEPS_MAX = 60


def walk(left: Left, seed: int, broken: Rules = NONE_BROKEN) -> Iterator[tuple[str, State]]:
    """One way through larger bounds; what goes wrong is rarer than what works, so that walks come far."""
    choose, state = random.Random(seed), State(left)
    for _ in range(STEPS_MAX):
        options = list(steps(state, broken))
        weights = [1 if any(word in label for word in _RARE) else 6 for label, _ in options]
        label, state = choose.choices(options, weights)[0]
        yield label, state


_RARE = (
    "crashes",
    "500",
    "a day old",
    "restored",
    "lost",
    "by itself",
    "customer",
    "nobody authenticates",
    "is a duplicate",
)


def walk_all(left: Left, count: int, broken: Rules = NONE_BROKEN) -> tuple[int, str | None, list[str]]:
    """How many steps so many walks took, and the first violation with its timeline."""
    total = 0
    for seed in range(count):
        timeline = []
        for label, state in walk(left, seed, broken):
            timeline.append(label)
            if what := violation(state):
                return total + len(timeline), f"{what} (walk {seed})", timeline
        total += len(timeline)
    return total, None, []
