"""The charge protocol as an executable model: what it promises holds, and each of its rules is needed for that."""

import pytest

from lab.specification.__main__ import described
from lab.specification.bounds import GATE, MUTANTS, NIGHTLY, NOT_NEEDED
from lab.specification.explore import explore
from lab.specification.world import Left

STATES_MAX = 2_000_000
"""More than each of these bounds has: a run that is cut short proves nothing, and raises."""


@pytest.mark.parametrize(
    "left",
    [pytest.param(left, id=described(left)) for left in GATE]
    + [pytest.param(left, id=described(left), marks=pytest.mark.nightly) for left in NIGHTLY],
)
def test_no_state_breaks_the_promise(left: Left) -> None:
    """At most one success; what was told is true; from every state an end, or an alarm with a command, is reached."""
    found = explore(left, states_max=STATES_MAX)
    assert not found.violation, found.timeline


@pytest.mark.parametrize("rule", MUTANTS)
def test_a_rule_left_out_is_noticed(rule: str) -> None:
    """A model that cannot fail proves nothing."""
    assert explore(MUTANTS[rule], frozenset({rule}), states_max=STATES_MAX).violation


@pytest.mark.parametrize("rule", NOT_NEEDED)
def test_a_rule_that_the_money_does_not_need(rule: str) -> None:
    """It is known to be there for another reason."""
    found = explore(NOT_NEEDED[rule], frozenset({rule}), states_max=STATES_MAX)
    assert not found.violation, found.timeline
