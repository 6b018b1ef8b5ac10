"""Every crash, every interleaving, every clock that we can think of, and one charge."""

from functools import partial

import pytest

from lab.simulation.choices import SeededChoices
from lab.simulation.explore import (
    Findings,
    caught,
    exhaustive_schedules,
    explored,
    minimal,
    random_world,
)
from lab.simulation.mutants import MUTANTS
from lab.simulation.scenarios import SCENARIOS
from lab.simulation.stored import is_caught
from lab.simulation.world import Scenario, World, violation_of
from onecharge.contract.states import PaymentState
from onecharge.runtime.consumer import BACKOFF_CAP_SECONDS
from tests.shop.builders import DAY, T0

SCHEDULES, SCHEDULES_NIGHTLY = 2_000, 10_000
SCHEDULES_FOR_A_MUTANT = 3_000
EXHAUSTIVE_SCHEDULES: dict[tuple[int, ...], int] = {
    (0, 0, 1): 6_515,
    (0, 0, 0): 11_445,
    (1, 0, 0): 11_445,
    (1, 0, 1): 6_515,
}
"""By the first choices: which delivery is received first, that it does not crash, which of the two goes on."""

MET = {
    *("crash before the effect", "crash after the effect", "killed at the time-out", "zombie", "delay", "days pass"),
    *("DLQ", "redrive", "row lost", "row stale", "clock differs", "other request", "API key of another account"),
    *("dynamodb UpdateItem: throttled", "dynamodb UpdateItem: answer lost", "stripe: stored answer replayed"),
    *("dynamodb PutItem: throttled", "dynamodb GetItem: throttled", "dynamodb Query: throttled"),
    *("stripe create: drop before", "stripe create: drop after", "stripe create: time-out", "stripe: key pruned"),
    *("stripe create: 429", "stripe create: 503", "stripe create: 401", "stripe create: 502 stored"),
    *("stripe confirm: drop before", "stripe confirm: drop after", "stripe confirm: time-out"),
    *("stripe confirm: 500 before", "stripe confirm: 500 after", "stripe confirm: 500, executed later"),
    *("stripe cancel: drop before", "stripe list: drop before", "stripe retrieve: drop before"),
    *("3-D Secure decided", "3-D Secure tried again", "client secret: handed out", "client secret: none"),
    *("cancel: requested", "canceled in the Dashboard", "metadata edited", "refunded by hand", "disputed"),
    *("charged twice", "another shop", "webhook: EventOfAnotherShop", "webhook: WebhookDeferred"),
    *("reconciler: ReconcileFailed", "alarm: Held", "alarm: MoneyDiffers", "alarm: RowLost", "alarm: ChargeDisputed"),
    *("release: store", "release: cancel", "release: let the worker create a PaymentIntent: Stripe has none"),
    *("ended: SUCCEEDED", "ended: DECLINED", "ended: CANCELED", "ended with an alarm"),
}
"""Everything that a schedule may meet."""

MET_RARELY = {
    *("stripe create: 502 stored", "stripe confirm: 500, executed two days later", "stripe confirm: processing"),
    *("stripe confirm: canceled by Stripe", "alarm: PaidAfterDecline", "alarm: RequestRefused", "release: Problem"),
    *("alarm: StripeInconclusive", "stripe events: drop before", "release: cancel", "3-D Secure tried again"),
}
"""Once in a few thousand schedules: asserted of the nightly run alone."""


def shown(findings: Findings) -> str:
    return "\n\n".join(f"SEED={name}\n{violation}" for name, violation in findings.violations[:2])


@pytest.mark.parametrize(
    "first",
    [
        each if place == 0 else pytest.param(each, marks=pytest.mark.nightly)
        for place, each in enumerate(EXHAUSTIVE_SCHEDULES)
    ],
)
def test_two_deliveries_of_one_order_in_every_way(first: tuple[int, ...]) -> None:
    """Every interleaving at every boundary, with no crash and with one at each point: about 36,000 schedules."""
    findings = exhaustive_schedules(first=first)
    assert not findings.violations, shown(findings)
    # One boundary more or less changes the number: then update it above.
    assert findings.schedules == EXHAUSTIVE_SCHEDULES[first]


def test_no_random_schedule_breaks_an_invariant(is_nightly: bool) -> None:
    """Crashes, lost answers, throttling, 500s, delays, days, lost rows, changed messages; each of them is met."""
    schedules = SCHEDULES_NIGHTLY if is_nightly else SCHEDULES
    findings = explored(range(schedules), partial(random_world, 1), seed=1)
    assert not findings.violations, shown(findings)
    assert findings.schedules == schedules
    assert (MET | MET_RARELY if is_nightly else MET - MET_RARELY) - findings.coverage.keys() == set()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_protocol_is_caught(name: str) -> None:
    """Each mutation of it, by the schedule that is stored for it or by another one of its scenario."""
    make = lambda scenario, number: random_world(1, number, MUTANTS[name], of=SCENARIOS.get(scenario))  # noqa: E731
    assert is_caught("charges", name, make, schedules=SCHEDULES_FOR_A_MUTANT), f"not caught: {name}"


def test_a_schedule_is_repeated_to_the_byte() -> None:
    """Its name is all that it takes."""
    name, violation = caught(5000, 1, MUTANTS["a random key for each create"]).violations[0]
    seed, number = map(int, name.split(":"))
    again = violation_of(random_world(seed, number, MUTANTS["a random key for each create"]))
    assert str(again) == str(violation)


def test_a_stripe_outage_of_six_hours_loses_nobody() -> None:
    """No payable order is in the DLQ, and all are charged within one backoff cap of its end."""
    world = World(Scenario(orders=(("pm_card_visa",),) * 20, copies=1), SeededChoices(1))
    for event in world.orders:
        world.send(event)
    end = T0 + 6 * 3600
    while world.queue or world.workers:
        world.stripe.down = world.time < end
        world.step()
        world.check()
    assert world.dlq == []
    assert set(world.states.values()) == {PaymentState.SUCCEEDED}
    assert len(world.stripe.charges) == 20
    assert all(end <= charge.created <= end + BACKOFF_CAP_SECONDS for charge in world.stripe.charges)


@pytest.mark.parametrize("row_is_lost", [False, True])
def test_a_message_redriven_on_day_13_charges_no_second_time(row_is_lost: bool) -> None:
    """Its first worker crashed between confirm and finalize: the row ends SUCCEEDED with the first charge's id.

    If its row was lost, it is held, and the operator's command finds the charge.
    """
    world = World(Scenario(copies=1), SeededChoices(1))
    world.send(world.orders[0])
    while not any(worker.label == "stripe confirm answered" for worker in world.workers):
        world.step()
    world.crash(world.workers[0])
    [first] = world.stripe.charges
    world.queue.clear()
    if row_is_lost:
        world.lose_all_rows()
    world.pass_time(13 * DAY)
    world.stripe.forget_keys()
    world.send(world.orders[0])
    world.run_until_idle()
    world.operate()
    world.run_until_idle()
    [row] = world.rows.values()
    assert row["state"] == {"S": PaymentState.SUCCEEDED}
    assert row["payment_intent_id"] == {"S": first.id}
    assert world.stripe.charges == [first]


def test_a_violation_is_shown_as_short_as_can_be() -> None:
    """The same invariant breaks, and what does not matter to it is gone."""
    mutate = MUTANTS["the id is stored after the confirm"]
    name, violation = caught(5000, 2, mutate).violations[0]
    shortest = minimal(name, mutate)
    assert shortest.what == violation.what
    assert len(shortest.timeline) < len(violation.timeline)
