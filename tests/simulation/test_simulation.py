"""Every crash, every interleaving, every clock that we can think of, and one charge."""

import pytest

from onecharge.contract.states import PaymentState
from onecharge.runtime.consumer import BACKOFF_CAP_SECONDS
from testing.simulation.choices import SeededChoices
from testing.simulation.explore import Findings, caught, exhaustive_schedules, minimal, random_schedules, random_world
from testing.simulation.mutants import MUTANTS
from testing.simulation.world import DAY, T0, Scenario, Violation, World

SCHEDULES = 10_000
SCHEDULES_FOR_A_MUTANT = 20_000
EXHAUSTIVE_SCHEDULES = 35_922


MET = {
    *("crash before the effect", "crash after the effect", "killed at the time-out", "zombie", "delay", "days pass"),
    *("DLQ", "redrive", "row lost", "row stale", "clock differs", "other request", "API key of another account"),
    *("stripe: key pruned", "stripe search: lags", "stripe: stored answer replayed", "charged after DECLINED"),
    *("dynamodb UpdateItem: throttled", "dynamodb UpdateItem: answer lost"),
    *("dynamodb PutItem: throttled", "dynamodb GetItem: throttled", "dynamodb Query: throttled"),
    *("stripe create: drop before", "stripe create: drop after", "stripe create: time-out"),
    *("stripe create: 429", "stripe create: 503", "stripe create: 401", "stripe create: 502 stored"),
    *("stripe confirm: drop before", "stripe confirm: drop after", "stripe confirm: time-out"),
    *("stripe confirm: 500 before", "stripe confirm: 500 after", "stripe confirm: 500, executed later"),
    *(
        "stripe confirm: 500, executed two days later",
        "stripe confirm: processing",
        "stripe confirm: canceled by Stripe",
    ),
    *("stripe cancel: drop before", "stripe search: drop before", "stripe list: drop before"),
    *("stripe retrieve: drop before", "stripe events: drop before"),
    *("3-D Secure decided", "3-D Secure tried again", "client secret: handed out", "client secret: none"),
    *("reconciler: Reconciled.SUCCEEDED", "reconciler: Reconciled.DECLINED", "reconciler: PaidAfterDecline"),
    *("reconciler: RowRecovered", "reconciler: ReconcileInterrupted", "reconciler: ReconcileFailed"),
    *("cancel: CANCELED", "cancel: PAID", "cancel: CANCELING", "cancel: failed"),
    *("webhook: Reconciled.SUCCEEDED", "webhook: Reconciled.DECLINED"),
    *("webhook: EventProcessed", "webhook: EventReplayed", "webhook: WebhookDeferred"),
}
"""Everything that a schedule may meet."""


def shown(findings: Findings) -> str:
    return "\n\n".join(f"SEED={name}\n{violation}" for name, violation in findings.violations[:2])


def test_two_deliveries_of_one_order_in_every_way() -> None:
    """Every interleaving at every boundary, with no crash and with one at each point: 35,922 schedules, all run."""
    findings = exhaustive_schedules()
    assert not findings.violations, shown(findings)
    # One boundary more or less changes the number: then update it here and in the docstring.
    assert findings.schedules == EXHAUSTIVE_SCHEDULES


def test_ten_thousand_random_schedules() -> None:
    """Crashes, lost answers, throttling, 500s, delays, days, lost rows, changed messages: no invariant breaks."""
    findings = random_schedules(SCHEDULES, seed=1)
    assert not findings.violations, shown(findings)
    assert findings.schedules == SCHEDULES
    assert MET - findings.coverage.keys() == set()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_protocol_is_caught(name: str) -> None:
    """Each mutation of it, within 20,000 schedules; `make mutants` says after how many."""
    findings = caught(SCHEDULES_FOR_A_MUTANT, 1, MUTANTS[name])
    assert findings.violations, f"not caught: {name}"


def test_a_schedule_is_repeated_to_the_byte() -> None:
    """Its name is all that it takes."""
    name, violation = caught(5000, 1, MUTANTS["what was found is adopted"]).violations[0]
    seed, number = map(int, name.split(":"))
    with pytest.raises(Violation) as again:
        random_world(seed, number, MUTANTS["what was found is adopted"]).run()
    assert str(again.value) == str(violation)


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
    """Its first worker crashed between confirm and finalize: the row ends SUCCEEDED with the first charge's id."""
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
    world.stripe.keys.clear()
    world.send(world.orders[0])
    world.until_quiet()
    [row] = world.rows.values()
    assert row["state"] == {"S": PaymentState.SUCCEEDED}
    assert row["payment_intent_id"] == {"S": first.id}
    assert world.stripe.charges == [first]


def test_a_violation_is_shown_as_short_as_can_be() -> None:
    """The same invariant breaks, and what does not matter to it is gone."""
    mutate = MUTANTS["id written after the confirm"]
    name, violation = caught(5000, 1, mutate).violations[0]
    shortest = minimal(name, mutate)
    assert shortest.what == violation.what
    assert len(shortest.timeline) < len(violation.timeline)
