"""An order and its payment agree in the end, whichever service lost its item, or has an older version of it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from lab.simulation.explore import explored
from lab.simulation.seams import SeamWorld, seam_world
from lab.simulation.stored import is_caught
from onecharge.contract.states import PaymentState
from onecharge.orders.transitions import CANCEL_UNPAID
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.charge_rules import Payment
from onecharge.payments.rows import Claim, Superseded
from onecharge.payments.sync import look_up_row
from ops.resolutions import Resolution
from ops.review import resolve

SCHEDULES, SCHEDULES_NIGHTLY = 400, 8_000
SCHEDULES_FOR_A_MUTANT = 4_000
MET = {
    *("Orders lost", "Orders older", "Payments lost", "Payments older", "record lost", "late duplicate"),
    *("paid again", "cancellation", "requests refused", "refunded by hand", "refunded in full", "3-D Secure decided"),
    *("cart 0 is ordered", "cart 1 is ordered", "cart 1 is ordered: refused", "Republished", "Order.NEEDS_REVIEW"),
    *("restore: emitted again", "restore: older than its order has seen: its revision was raised"),
    *(f"ended: {status}" for status in ("PAID", "PAYMENT_DECLINED", "CANCELED")),
    *(f"review: {resolution} done" for resolution in ("retry", "cancel")),
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
        def claim(self, *given: Any, **named: Any) -> Claim[Payment]:
            claim = super().claim(*given, **named)
            if isinstance(claim, Superseded) and claim.row.state is not PaymentState.PENDING:
                # Without a payment method the message does not go on with it.
                return Superseded(replace(claim.row, state=PaymentState.PENDING, payment_method=""))
            return claim

    world.service.store = Silent(**vars(world.service.store))


def _restore_emits_nothing(world: SeamWorld) -> None:
    world.emit_page = lambda *_, **__: ([], None)


def _not_looked_up(world: SeamWorld) -> None:
    world.service.replaced[look_up_row] = lambda payment, tools: None


def _declined_is_left_open(world: SeamWorld) -> None:
    """An order of other money is canceled alone, while the PaymentIntent of its declined payment stays open."""

    def resolve_alone(order_id: str, resolution: Resolution, *given: Any) -> tuple[bool, str]:
        order, row = world.orders.find(order_id), world.payments.read(order_id)
        if resolution is Resolution.CANCEL and order and row and row.state is PaymentState.DECLINED:
            world.orders.move(order_id, CANCEL_UNPAID, at=datetime.fromtimestamp(world.clock(), UTC), changes={})
            return True, "the order alone is canceled"
        return resolve(order_id, resolution, *given)

    world.resolve_review = resolve_alone


def _revisions_only_count(world: SeamWorld) -> None:
    """A revision is the number of writes, and begins anew with a row that was lost."""
    world.counts_revisions = True


def _age_is_known(world: SeamWorld) -> None:
    """An order that both services have lost is as young as it says."""
    world.service.knows_ages = True


MUTANTS: Mapping[str, Callable[[SeamWorld], None]] = {
    "an outcome counts whatever its money": _ignoring(" AND amount_minor = :amount AND currency = :currency"),
    "outcomes by arrival": _ignoring(" AND (attribute_not_exists(payment_revision) OR payment_revision < :revision)"),
    "the outcome of a later attempt is ignored": _ignoring("attempt < :attempt OR "),
    "a superseded message emits nothing": _superseded_emits_nothing,
    "a restore emits nothing": _restore_emits_nothing,
    "a row without a PaymentIntent is not looked up": _not_looked_up,
    "an order is canceled beside a declined payment": _declined_is_left_open,
    "revisions only count": _revisions_only_count,
    "an order that both services lost is as young as it says": _age_is_known,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_seam_that_is_broken_is_caught(name: str) -> None:
    """Each mutant, by the schedule that is stored for it or by another one of its scenario."""
    make = lambda scenario, number: seam_world(number, MUTANTS[name], of=scenario)  # noqa: E731
    assert is_caught("seams", name, make, schedules=SCHEDULES_FOR_A_MUTANT), f"not caught: {name}"
