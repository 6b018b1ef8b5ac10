"""An order and its payment agree in the end, whichever service lost its item, or has an older version of it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from lab.simulation.explore import explored
from lab.simulation.seams import SeamWorld, seam_world
from lab.simulation.stored import is_caught
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.rows import Claim, Superseded
from tests.shop.builders import T0

SCHEDULES, SCHEDULES_NIGHTLY = 400, 8_000
SCHEDULES_FOR_A_MUTANT = 4_000
MET = {
    *("Orders lost", "Orders older", "Payments lost", "Payments older", "record lost", "late duplicate"),
    *("paid again", "cancellation", "requests refused", "refunded by hand", "refunded in full", "3-D Secure decided"),
    *("cart 0 is ordered", "cart 1 is ordered", "cart 1 is ordered: refused", "Republished"),
    *("restore: its payment is emitted again", "released", "alarm: Held"),
    *(f"ended: {status}" for status in ("PAID", "PAYMENT_DECLINED", "CANCELED")),
}
"""Everything that a schedule of both services may meet."""


def test_order_and_payment_agree_in_the_end(is_nightly: bool) -> None:
    """PAID exactly if it is charged, once, with its own money; waiting for nothing; with Stripe's sum of refunds."""
    findings = explored(range(SCHEDULES_NIGHTLY if is_nightly else SCHEDULES), seam_world)
    assert not findings.violations, findings.violations[0]
    assert MET - findings.coverage.keys() == set()


# ---------------------------------------------------------------- mutants


def _ignoring(condition: str) -> Callable[[SeamWorld], None]:
    """A part of a condition is left out."""
    return lambda world: world.dynamodb.ignored_conditions.append(condition)


def _superseded_emits_nothing(world: SeamWorld) -> None:
    class Silent(PaymentStore):
        def claim(self, *given: Any, **named: Any) -> Claim:
            claim = super().claim(*given, **named)
            # As if its outcome had been emitted a moment ago.
            if not isinstance(claim, Superseded):
                return claim
            return Superseded(replace(claim.row, last_emitted_at=2 * T0))

    world.service.store = Silent(**vars(world.service.store))


def _restore_emits_nothing(world: SeamWorld) -> None:
    world.mends = lambda _: iter(())


def _held_is_not_released(world: SeamWorld) -> None:
    world.release = lambda: None  # type: ignore[method-assign]


def _revisions_only_count(world: SeamWorld) -> None:
    """A revision is the number of writes, and begins anew with a row that was lost."""
    world.counts_revisions = True


MUTANTS: Mapping[str, Callable[[SeamWorld], None]] = {
    "an outcome counts whatever its money": _ignoring(" AND amount_minor = :amount AND currency = :currency"),
    "outcomes by arrival": _ignoring(" AND (attribute_not_exists(payment_revision) OR payment_revision < :revision)"),
    "the outcome of a later attempt is ignored": _ignoring("attempt < :attempt OR "),
    "a superseded message emits nothing": _superseded_emits_nothing,
    "a restore emits nothing": _restore_emits_nothing,
    "no operator comes": _held_is_not_released,
    "revisions only count": _revisions_only_count,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_seam_that_is_broken_is_caught(name: str) -> None:
    """Each mutant, by the schedule that is stored for it or by another one of its scenario."""
    make = lambda scenario, number: seam_world(number, MUTANTS[name], of=scenario)  # noqa: E731
    assert is_caught("seams", name, make, schedules=SCHEDULES_FOR_A_MUTANT), f"not caught: {name}"
