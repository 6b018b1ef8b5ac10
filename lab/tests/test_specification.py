"""The charge protocol as an executable model: what it promises holds, and each of its rules is needed for that."""

import pytest

from lab.specification.__main__ import describe
from lab.specification.bounds import BEFORE_THE_MEND, COMPLETE, FAULTS, MUTANTS, REDUNDANT, SCHEDULES, WALKS
from lab.specification.explore import explore, follow, violation, walk_all
from lab.specification.states import Left, State

STATES_MAX = 200_000
"""More than each of these bounds has: a run that is capped proves nothing."""


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(left, id=describe(left), marks=[pytest.mark.nightly] * bool(n % 4))
        for n, left in enumerate(COMPLETE)
    ],
)
def test_no_state_within_the_bounds_breaks_the_promise(left: Left) -> None:
    """At most one success; CANCELED is never charged; every state can still finish."""
    found = explore(left, states_max=STATES_MAX)
    assert found.violation is None, found.timeline
    assert found.is_complete


@pytest.mark.parametrize(("left", "count"), WALKS, ids=[describe(left) for left, _ in WALKS])
def test_no_random_walk_breaks_the_promise(left: Left, count: int, is_nightly: bool) -> None:
    """Larger bounds than can be explored."""
    _, what, timeline = walk_all(left, count if is_nightly else count // 4)
    assert what is None, timeline


@pytest.mark.parametrize("rule", MUTANTS)
def test_a_rule_left_out_is_caught(rule: str) -> None:
    """A model that cannot fail proves nothing."""
    left, first = MUTANTS[rule]
    broken = frozenset(rule.split(", "))
    assert explore(left, broken, states_max=STATES_MAX, start=follow(State(left), first, broken)).violation


@pytest.mark.parametrize(("rule", "left"), [(rule, left) for rule, each in REDUNDANT.items() for left in each])
def test_a_rule_that_the_promise_does_not_need(rule: str, left: Left) -> None:
    """It is known to be there for another reason: time, or a second fence."""
    found = explore(left, frozenset({rule}), states_max=STATES_MAX)
    assert found.violation is None, found.timeline
    assert found.is_complete


def test_the_schedule_that_charged_twice_before_the_lookup_followed_the_create() -> None:
    """A stale row gives a worker its lease back, and a 500 creates late: two workers chose different generations."""
    broken = frozenset({"the lookup comes before the create"})
    ends = ("holder#1 confirms 2: succeeded", "holder#2 confirms 1: succeeded")
    before = follow(State(FAULTS), (*BEFORE_THE_MEND, *ends), broken)
    assert violation(before) == "charged twice"


@pytest.mark.parametrize(("left", "schedule"), SCHEDULES, ids=["late create, stale row", "stored failure, stale row"])
def test_nothing_that_follows_the_schedule_charges_twice_now(left: Left, schedule: tuple[str, ...]) -> None:
    """From its last step on, every state is explored, with a forgotten key besides."""
    found = explore(left, start=follow(State(left), schedule), states_max=STATES_MAX)
    assert found.violation is None, found.timeline
    assert found.is_complete
