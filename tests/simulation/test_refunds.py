"""Refunds in a hostile world: never more than was asked for, FAILED means not refunded, none is stuck."""

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from onecharge.contract.refunds import RefundState
from onecharge.payments.apply_event import apply_event
from onecharge.payments.reconcile import ReconcileTools
from onecharge.payments.refunds.gateway import RefundResponse, StripeRefunds
from onecharge.payments.refunds.protocol import FoundRefund, FrozenRefund, Refund, RefundDecision, decide
from onecharge.payments.refunds.refund import RefundSteps
from onecharge.payments.stripe_events import ChargeRefundedEvent, RefundEvent, StripeEvent
from onecharge.payments.stripe_responses import Failure, ResponseKind
from testing.simulation.choices import SeededChoices
from testing.simulation.refunds import FAULTS, HOUR, Break, RefundScenario, RefundWorld, live
from testing.simulation.stored import is_caught
from testing.simulation.world import Violation

SCHEDULES, SCHEDULES_NIGHTLY = 750, 3_000
SCHEDULES_FOR_A_MUTANT = 12_000
_TURNED_AWAY = frozenset({"drop before", "429", "503", "401"})
_REFUSED: dict[str, Any] = {
    "fault_probability": 0.25,
    "crash_probability": 0.02,
    "jump_seconds": (5, 40, 20 * 60, 5 * HOUR, 20 * HOUR, 22 * HOUR, 25 * HOUR),
    "zombies": True,
}
SCENARIOS: Mapping[str, RefundScenario] = {
    "everything at once": RefundScenario(
        fault_probability=0.1, crash_probability=0.02, lose_rows=True, stale_rows=True, other_account=True, zombies=True
    ),
    "another account": RefundScenario(
        fault_probability=0.15, crash_probability=0.02, other_account=True, copies=1, stale_rows=True
    ),
    "banks return": RefundScenario(fault_probability=0.05, crash_probability=0.01, banks_return=True, lose_rows=True),
    "by hand": RefundScenario(fault_probability=0.05, crash_probability=0.02, by_hand=True, zombies=True),
    "refusals that a key stores": RefundScenario(
        **_REFUSED,
        stripe_faults=_TURNED_AWAY
        | {"balance too low", "500, executed 20 hours later", "502, executed 20 hours later", "drop after"},
    ),
    # What Stripe executes late is left out: with a row that is lost, it is the exception that protocol.py states.
    "refusals that a key stores, rows lost": RefundScenario(
        **_REFUSED,
        lose_rows=True,
        stale_rows=True,
        stripe_faults=_TURNED_AWAY | {"balance too low", "drop after", "time-out"},
    ),
    "500s that are executed days later": RefundScenario(
        fault_probability=0.15,
        jump_seconds=(5, 40, HOUR),
        redeliveries=0,
        stripe_faults=FAULTS | {"500, executed two days later"},
    ),
}
MET = {
    *("crash", "killed", "delay", "row lost", "row stale", "another account", "by hand", "bank returns"),
    *("stripe: key pruned", "stripe refunds: another account shows nothing", "stripe refunds: drop before"),
    *(f"stripe refund: {kind}" for kind in (*FAULTS, "500, executed two days later")),
    *("dynamodb UpdateItem: answer lost", "dynamodb UpdateItem: throttled"),
    *("ended: SUCCEEDED", "ended: FAILED", "ended: NEEDS_REVIEW", "WriteRefused"),
}
"""Everything that a schedule of refunds may meet."""


def run(number: int, mutate: Break = lambda world: None) -> tuple[Violation | None, RefundWorld]:
    """The schedule of that number; the scenarios take turns."""
    world = RefundWorld(list(SCENARIOS.values())[number % len(SCENARIOS)], SeededChoices(number), mutate)
    try:
        world.run_all()
    except Violation as violation:
        return violation, world
    return None, world


def test_no_schedule_of_refunds_breaks_an_invariant(is_nightly: bool) -> None:
    """No refund twice, none of what is said to have failed, none stuck; and every fault was met."""
    met: Counter[str] = Counter()
    for number in range(SCHEDULES_NIGHTLY if is_nightly else SCHEDULES):
        violation, world = run(number)
        assert violation is None, violation
        met += world.coverage
    assert MET - met.keys() == set()


def is_held(number: int, mutate: Break = lambda world: None) -> Violation | None:
    """A schedule in which Stripe holds refunds for lack of balance."""
    scenario = RefundScenario(fault_probability=0.05, crash_probability=0.02, holds=True)
    world = RefundWorld(scenario, SeededChoices(number), mutate)
    try:
        world.run_all()
    except Violation as violation:
        return violation
    return None


def test_a_row_says_why_stripe_holds_its_refund() -> None:
    """In whichever order the events come; a protocol that ignores these events is caught."""
    assert [violation for number in range(150) if (violation := is_held(number))] == []
    assert any(is_held(number, events_are_ignored) for number in range(20))


# ---------------------------------------------------------------- what is not promised


def test_what_is_said_to_have_failed_is_made_only_if_its_row_was_lost_and_money_came_back() -> None:
    """The exception that protocol.py states, and no other: Stripe refused, the row that knew it was lost, a bank
    returned what somebody had refunded by hand, and another delivery sent the same request."""
    scenario = RefundScenario(fault_probability=0.05, crash_probability=0.02, by_hand=True, lose_rows=True)
    violated: list[tuple[str, RefundWorld]] = []
    for number in range(200):
        world = RefundWorld(scenario, SeededChoices(number))
        try:
            world.run_all()
        except Violation as violation:
            violated.append((violation.what, world))
    assert len(violated) > 5
    for what, world in violated:
        [refund_id] = [each for each in world.said_failed if live(world.stripe, each)]
        happened = [event for _, event in world.timeline]
        assert what == "said to be FAILED, and refunded"
        assert f"row {refund_id[-1]} lost" in happened
        assert any(event.startswith("the bank returns") for event in happened)


# ---------------------------------------------------------------- broken on purpose


def key_with_a_random_part(world: RefundWorld) -> None:
    numbers = itertools.count()

    class OtherKeys(StripeRefunds):
        def create(self, request: FrozenRefund, key_number: int = 0) -> RefundResponse:
            return super().create(request, 1 + next(numbers))

    world.gateway = OtherKeys


def a_new_key_after_a_stored_failure(world: RefundWorld) -> None:
    class NextKey(StripeRefunds):
        def create(self, request: FrozenRefund, key_number: int = 0) -> RefundResponse:
            response = super().create(request, key_number)
            spent = response.failure is not None and response.failure.kind is ResponseKind.STORED_FAILURE
            return super().create(request, key_number + 1) if spent else response

    world.gateway = NextKey


def no_lookup(world: RefundWorld) -> None:
    class Blind(StripeRefunds):
        def find_refunds(self, payment_intent_id: str, refund_id: str) -> list[FoundRefund]:
            super().find_refunds(payment_intent_id, refund_id)
            return []

    world.gateway = Blind


def a_lookup_of_all_refunds_of_the_order(world: RefundWorld) -> None:
    class Undiscerning(StripeRefunds):
        def find_refunds(self, payment_intent_id: str, refund_id: str) -> list[FoundRefund]:
            every = {each.metadata.to_dict().get("refund_id", "") for each in world.stripe.refunds}
            return [
                each
                for other in sorted(every)
                for each in super(Undiscerning, self).find_refunds(payment_intent_id, other)
            ]

    world.gateway = Undiscerning


def a_404_is_a_refusal(world: RefundWorld) -> None:
    class Convinced(StripeRefunds):
        def create(self, request: FrozenRefund, key_number: int = 0) -> RefundResponse:
            response = super().create(request, key_number)
            if response.failure and response.failure.kind is ResponseKind.NOT_FOUND:
                return RefundResponse(failure=Failure(ResponseKind.INVALID, code="charge_already_refunded"))
            return response

    world.gateway = Convinced


def a_spent_key_is_sent_again(world: RefundWorld) -> None:
    def forgetful(row: Refund, *given: Any, **named: Any) -> RefundDecision:
        return decide(replace(row, key_spent_at=None), *given, **named)

    world.refund_steps = RefundSteps(decide=forgetful)


def a_replayed_refusal_is_sent_again(world: RefundWorld) -> None:
    def stubborn(row: Refund, *given: Any, failure: Failure | None = None, **named: Any) -> RefundDecision:
        if failure and failure.kind is ResponseKind.STORED_REFUSAL:
            failure = replace(failure, kind=ResponseKind.ACCOUNT)
        return decide(row, *given, failure=failure, **named)

    world.refund_steps = RefundSteps(decide=stubborn)


def open_claims_do_not_count(world: RefundWorld) -> None:
    def hasty(row: Refund, *given: Any, **named: Any) -> RefundDecision:
        return decide(replace(row, open_claims=1), *given, **named)

    world.refund_steps = RefundSteps(decide=hasty)


def whoever_lost_its_lease_writes(world: RefundWorld) -> None:
    world.dynamodb.ignored_conditions.append("lease_owner = :ours AND #state = :pending")


def an_event_does_not_touch_an_unfinished_row(world: RefundWorld) -> None:
    def patient(event: StripeEvent, tools: ReconcileTools) -> None:
        refund_id = str(event.refund_id) if isinstance(event, RefundEvent) else ""
        row = tools.refund.store.read(str(event.order_id), refund_id) if refund_id else None
        if row is None or row.state is not RefundState.PENDING:
            apply_event(event, tools)

    world.apply_event = patient


def events_are_ignored(world: RefundWorld) -> None:
    world.apply_event = lambda event, tools: None


def the_sum_of_an_event_is_believed(world: RefundWorld) -> None:
    def believing(event: StripeEvent, tools: ReconcileTools) -> None:
        if isinstance(event, ChargeRefundedEvent):
            payment = tools.charge.store.read(str(event.order_id))
            assert payment is not None
            tools.charge.store.record_refunded(payment, event.amount_refunded_minor, now=world.time)
        else:
            apply_event(event, tools)

    world.apply_event = believing


MUTANTS: Mapping[str, Break] = {
    "key with a random part": key_with_a_random_part,
    "a new key after a stored failure": a_new_key_after_a_stored_failure,
    "no lookup": no_lookup,
    "a lookup of all refunds of the order": a_lookup_of_all_refunds_of_the_order,
    "a 404 is a refusal": a_404_is_a_refusal,
    "a spent key is sent again": a_spent_key_is_sent_again,
    "a replayed refusal is sent again": a_replayed_refusal_is_sent_again,
    "open claims do not count": open_claims_do_not_count,
    "whoever lost its lease writes": whoever_lost_its_lease_writes,
    "an event does not touch an unfinished row": an_event_does_not_touch_an_unfinished_row,
    "events are ignored": events_are_ignored,
    "the sum of an event is believed": the_sum_of_an_event_is_believed,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_refund_protocol_is_caught(name: str) -> None:
    """Each mutation of it, by the schedule that is stored for it or within 12,000."""
    broken = lambda _, number: run(number, MUTANTS[name])[0]  # noqa: E731
    assert is_caught("refunds", name, broken, schedules=SCHEDULES_FOR_A_MUTANT), f"not caught: {name}"
