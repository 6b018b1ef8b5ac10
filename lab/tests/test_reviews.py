"""A person who resolves reviews, at any moment and whatever they believe, charges nobody twice and loses nobody."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from lab.simulation.explore import explored
from lab.simulation.reviews import ReviewWorld, review_world
from lab.simulation.stored import is_caught
from lab.simulation.world import World
from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rules import Finalize, Payment
from ops.resolutions import Refused, Reopen, Resolution, Step, Write
from ops.resolver import Resolved, Resolver, Review

SCHEDULES, SCHEDULES_NIGHTLY = 280, 4_900
SCHEDULES_FOR_A_MUTANT = 3_000
MET = {
    *("requests refused", "a request is refused as invalid", "review: a cancellation is requested"),
    *(f"review: {each} refused" for each in ("paid", "retry", "cancel")),
    *(f"review: {each} resolved" for each in ("retry", "cancel")),
    *("canceled in the Dashboard", "review: a cancellation in the Dashboard is accepted"),
    *("crash after the effect", "row lost", "row stale", "clock differs", "zombie"),
}
"""Everything that a schedule of reviews may meet. That one is resolved as paid is rare: reconcile is faster."""


def test_no_decision_of_a_person_breaks_an_invariant(is_nightly: bool) -> None:
    """One charge at most, nothing said to be canceled that is charged, nothing left that nobody can end."""
    findings = explored(range(SCHEDULES_NIGHTLY if is_nightly else SCHEDULES), review_world)
    assert not findings.violations, findings.violations[0]
    assert MET - findings.coverage.keys() == set()


# ---------------------------------------------------------------- mutants


def _resolving(mutant: type[Resolver]) -> Callable[[World], None]:
    def mutate(world: World) -> None:
        assert isinstance(world, ReviewWorld)
        world.resolver = lambda given: mutant(given.store, given.gateway, given.clock)

    return mutate


@dataclass(frozen=True)
class _BelievesThePerson(Resolver):
    """Resolves as paid without reading Stripe again: what the row names has succeeded, if somebody says so."""

    def resolve(
        self, order_id: str, resolution: Resolution, review: Review, *, chosen: str | None = None
    ) -> Resolved | Refused:
        row = self.store.read(order_id)
        if resolution is not Resolution.PAID or row is None or row.state is not PaymentState.NEEDS_REVIEW:
            return super().resolve(order_id, resolution, review, chosen=chosen)
        return self._apply(row, Write(Finalize(PaymentState.SUCCEEDED, row.payment_intent_id, row.generation)), review)


@dataclass(frozen=True)
class _CancelsByItself(Resolver):
    """Writes CANCELED instead of having the protocol cancel at Stripe."""

    def _apply(self, payment: Payment, decision: Step, review: Review) -> Resolved | Refused:
        if isinstance(decision, Reopen) and decision.cancel:
            decision = Write(Finalize(PaymentState.CANCELED))
        return super()._apply(payment, decision, review)


@dataclass(frozen=True)
class _AcceptsNothing(Resolver):
    """A retry after a cancellation in the Dashboard needs review again, without end."""

    def _apply(self, payment: Payment, decision: Step, review: Review) -> Resolved | Refused:
        if isinstance(decision, Reopen):
            decision = Reopen(decision.cancel)
        return super()._apply(payment, decision, review)


def _on_any_revision(world: World) -> None:
    """Writes on a row that has changed since it was read."""
    world.dynamodb.ignored_conditions.append("revision = :revision AND #state = :was AND lease_expires_at <= :now")


def _metrics_at_the_end(world: World) -> None:
    """An alarm is a line in the log once the invocation has ended: whoever is killed has lost it."""
    world.service.alarmed = lambda: None


MUTANTS: Mapping[str, Callable[[World], None]] = {
    "resolved as paid without reading Stripe again": _resolving(_BelievesThePerson),
    "resolved on any revision": _on_any_revision,
    "canceled without Stripe's word": _resolving(_CancelsByItself),
    "alarms are written when the invocation ends": _metrics_at_the_end,
    "a retry that accepts no cancellation": _resolving(_AcceptsNothing),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_careless_resolution_is_caught(name: str) -> None:
    """Each mutant, by the schedule that is stored for it or by another one of its scenario."""
    make = lambda scenario, number: review_world(number, MUTANTS[name], of=scenario)  # noqa: E731
    assert is_caught("reviews", name, make, schedules=SCHEDULES_FOR_A_MUTANT), f"not caught: {name}"
