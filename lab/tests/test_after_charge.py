"""Refunds by hand, disputes, suspicions and others' charges: the row ends as Stripe shows them, whatever is lost."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from lab.simulation.after_charge import after_charge_world
from lab.simulation.explore import explored
from lab.simulation.stored import is_caught
from lab.simulation.world import World
from onecharge.payments.after_charge import REVIEW, AfterCharge, Disputes
from onecharge.payments.charge_rules import FrozenRequest, Payment, StripeIntent
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.stripe_objects import read_intent
from onecharge.payments.sync import look_back
from onecharge.payments.sync_rules import Discrepancy, find_discrepancy
from onecharge.payments.tools import Tools

SCHEDULES, SCHEDULES_NIGHTLY = 200, 4_000
SCHEDULES_FOR_A_MUTANT = 3_000
MET = {
    *("refunded by hand", "disputed", "charged twice", "row lost", "crash after the effect"),
    *("webhook: ChargeDisputed", "reconciler: ChargeDisputed", "webhook: AfterChargeRecorded"),
    *("approved", "a stranger in the transfer group", "webhook: FraudSuspected"),
    *("webhook: Discrepancy.LOST_ROW", "charged twice: SUCCEEDED", "charged twice: NEEDS_REVIEW"),
}
"""Everything that such a schedule may meet."""


def test_a_row_ends_with_stripes_refunds_disputes_and_suspicion(is_nightly: bool) -> None:
    """Whichever events come when; and no event ends a review of two charges."""
    findings = explored(range(SCHEDULES_NIGHTLY if is_nightly else SCHEDULES), after_charge_world)
    assert not findings.violations, findings.violations[0]
    assert MET - findings.coverage.keys() == set()


# ---------------------------------------------------------------- mutants


def _asking(mutant: type[StripeGateway]) -> Callable[[World], None]:
    def mutate(world: World) -> None:
        world.service.gateway = mutant(world.service.gateway.client, world.service.gateway.parallel)

    return mutate


class _ForgetsWhatFollowed(StripeGateway):
    def after_charge(self, intent: StripeIntent, before_each: Callable[[], None] = lambda: None) -> AfterCharge:
        return AfterCharge()


class _ReadsOneDispute(StripeGateway):
    def disputes(self, payment_intent_id: str) -> Disputes:
        return dict(list(super().disputes(payment_intent_id).items())[:1])


class _AsksNobody(StripeGateway):
    def fraud_suspicion(self, intent: StripeIntent) -> str | None:
        return REVIEW if intent.review else None


class _TrustsTheGroup(StripeGateway):
    def find_payment_intents(self, request: FrozenRequest, **given: Any) -> list[StripeIntent]:
        grouped = self.client.v1.charges.list({"transfer_group": request.order_id}).data
        found = [read_intent(self.client.v1.payment_intents.retrieve(str(each.payment_intent))) for each in grouped]
        strangers = [replace(each, order_id=request.order_id) for each in found if each.order_id != request.order_id]
        return super().find_payment_intents(request, **given) + strangers


def _recovers_without_looking_back(world: World) -> None:
    world.service.replaced[look_back] = lambda *_: AfterCharge()


def _believes_a_row_that_stands_for_a_lost_one(world: World) -> None:
    """A worker has claimed the order again and stored the id, and died: the row says that nothing is refunded."""

    def looked_back(intent: StripeIntent, tools: Tools) -> AfterCharge:
        row = tools.payments.read(str(intent.order_id))
        return row.after_charge if row and row.is_of(intent.payment_intent_id) else look_back(intent, tools)

    world.service.replaced[look_back] = looked_back


def _ends_any_review(world: World) -> None:
    def found(payment: Payment | None, intent: StripeIntent, **given: Any) -> Discrepancy:
        return find_discrepancy(replace(payment, decline_code=None) if payment else None, intent, **given)

    world.service.replaced[find_discrepancy] = found


MUTANTS: Mapping[str, Callable[[World], None]] = {
    "a lost row comes back without refunds and disputes": _recovers_without_looking_back,
    "a row that stands for a lost one is taken for what it says": _believes_a_row_that_stands_for_a_lost_one,
    "an order placed again has no refunds and disputes": _asking(_ForgetsWhatFollowed),
    "one dispute taken for all": _asking(_ReadsOneDispute),
    "a suspicion is what the PaymentIntent shows": _asking(_AsksNobody),
    "a stranger's charge in the transfer group is the order's": _asking(_TrustsTheGroup),
    "an event ends a review of two charges": _ends_any_review,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_careless_handling_is_caught(name: str) -> None:
    """Each mutant, by the schedule that is stored for it or by another one of its scenario."""
    make = lambda scenario, number: after_charge_world(number, MUTANTS[name], of=scenario)  # noqa: E731
    assert is_caught("after the charge", name, make, schedules=SCHEDULES_FOR_A_MUTANT), f"not caught: {name}"
