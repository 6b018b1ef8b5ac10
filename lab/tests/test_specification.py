"""The protocols as executable models: what they promise holds, and each of their rules is needed for that."""

import pytest

from lab.specification import refund
from lab.specification.bounds import EXAMPLE, GATE, MUTANTS, NIGHTLY, Bounds, described, explored

STATES_MAX = 2_000_000
"""More than each of these bounds has: a run that is cut short proves nothing, and raises."""


@pytest.mark.parametrize(
    "left",
    [pytest.param(left, id=described(left)) for left in GATE]
    + [pytest.param(left, id=described(left), marks=pytest.mark.nightly) for left in NIGHTLY],
)
def test_no_state_breaks_the_promise(left: Bounds) -> None:
    """Nothing is charged or refunded twice; what was told is true; from every state an end, or an alarm, is reached."""
    found = explored(left, states_max=STATES_MAX)
    print(f"{described(left)}: {found.states:,} states, {found.seconds:.0f} s")
    assert not found.violation, found.timeline


@pytest.mark.parametrize(("rule", "left"), MUTANTS)
def test_a_rule_left_out_is_noticed(rule: str, left: Bounds) -> None:
    """A model that cannot fail proves nothing."""
    found = explored(left, rule, states_max=STATES_MAX)
    print(f"without {rule!r}: {found.violation}")
    assert found.violation


SENT = ("0 is claimed", "0 is not found", "0 is written as sent", "0 is sent: 500, executed later")
BY_HAND = {"a refund by hand": 15, "the payment's row is synced": 15, "the total arrives": 8}
OUTCOME = "the outcome SUCCEEDED of 0 arrives"
"""Steps, and what is left after each: 2,500 are paid, 1,000 of ours waits."""


@pytest.mark.parametrize(
    "moments",
    [
        dict.fromkeys(SENT, 15) | BY_HAND | {"a late request makes 0": 8, "the webhook tells 0": 8, OUTCOME: 8},
        # The total overtakes the outcome: too little is left for a moment, never too much.
        BY_HAND
        | dict.fromkeys((*SENT, "a late request makes 0", "the payment's row"), 8)
        | {"the total": -2, "the webhook tells 0": -2, OUTCOME: 8},
    ],
    ids=["ours waits, then by hand", "by hand, then ours; its total overtakes its outcome"],
)
@pytest.mark.parametrize("second", [8, 9])
def test_what_is_left_at_each_moment(moments: dict[str, int], second: int) -> None:
    """With 1,000 of ours and 700 by hand 800 are left: a second refund of 800 is accepted, and one of 900 is not."""
    state = refund.first(EXAMPLE._replace(amounts=(10, second), error=1))
    for moment, left in moments.items():
        state = next(after for label, after in refund.steps(state, frozenset()) if label.startswith(moment))
        accepts = any(label == "1 is requested" for label, _ in refund.steps(state, frozenset()))
        assert (refund.left_to_refund(state), accepts) == (left, second <= left), moment
