"""Every crash, every interleaving, every clock that we can think of, and one charge."""

import pytest

from onecharge.deliveries import BACKOFF_CAP_SECONDS
from onecharge.states import ChargeState
from tests.simulation.explore import Findings, exhaustive_schedules, random_schedules, random_world
from tests.simulation.mutants import MUTANTS
from tests.simulation.world import DAY, T0, Scenario, SeededChoices, Violation, World

SCHEDULES = 10_000
EXHAUSTIVE_SCHEDULES = 5630


def shown(findings: Findings) -> str:
    return "\n\n".join(f"SEED={name}\n{violation}" for name, violation in findings.violations[:2])


def test_two_deliveries_of_one_order_in_every_way() -> None:
    """Every interleaving at every boundary, with no crash and with one at each point: 5,630 schedules, all run."""
    findings = exhaustive_schedules()
    assert not findings.violations, shown(findings)
    # A boundary more or less changes the number: then say so here and in docs/protocol.md.
    assert findings.schedules == EXHAUSTIVE_SCHEDULES


def test_ten_thousand_random_schedules() -> None:
    """Crashes, lost answers, throttling, 500s, delays, days, lost rows, changed messages: no invariant breaks."""
    findings = random_schedules(SCHEDULES, seed=1)
    assert not findings.violations, shown(findings)
    assert findings.schedules == SCHEDULES
    met = {
        *("crash", "delay", "days pass", "row lost", "other request", "zombie"),
        *("ledger: throttled", "ledger: answer lost", "stripe: look fails", "stripe: drop before"),
        *("stripe: drop after", "stripe: 500 before", "stripe: 500 after", "stripe: 429", "stripe: 503", "stripe: 401"),
    }
    assert findings.coverage.keys() >= met


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_protocol_is_caught(name: str) -> None:
    """Each mutation of it, within 5,000 schedules."""
    findings = random_schedules(5000, seed=1, mutate=MUTANTS[name], stop_at_first=True)
    assert findings.violations, f"not caught: {name}"


def test_a_schedule_is_repeated_to_the_byte() -> None:
    """Its name is all that it takes."""
    name, violation = random_schedules(
        5000, seed=1, mutate=MUTANTS["key per message id"], stop_at_first=True
    ).violations[0]
    seed, number = map(int, name.split(":"))
    with pytest.raises(Violation) as again:
        random_world(seed, number, MUTANTS["key per message id"]).run()
    assert str(again.value) == str(violation)


def test_a_stripe_outage_of_six_hours_loses_nobody() -> None:
    """No payable order is in the DLQ, and all are charged within one backoff cap of its end."""
    world = World(Scenario(cards=("pm_card_visa",) * 20, copies=1), SeededChoices(1))
    for event in world.orders:
        world.send(event)
    end = T0 + 6 * 3600
    while world.queue or world.workers:
        world.stripe.down = world.time < end
        world.step()
        world.check()
    assert world.dlq == []
    assert {row.state for row in world.ledger.rows.values()} == {ChargeState.SUCCEEDED}
    assert len(world.stripe.charges) == 20
    assert all(end <= charge.created <= end + BACKOFF_CAP_SECONDS for charge in world.stripe.charges)


@pytest.mark.parametrize("row_is_lost", [False, True])
def test_a_message_redriven_on_day_13_charges_no_second_time(row_is_lost: bool) -> None:
    """Its first worker crashed between charge and settle: the row ends SUCCEEDED with the first charge's id."""
    world = World(Scenario(copies=1), SeededChoices(1))
    world.send(world.orders[0])
    while not any(worker.label == "stripe.charge answered" for worker in world.workers):
        world.step()
    world.crash(world.workers[0])
    [first] = world.stripe.charges
    world.queue.clear()
    if row_is_lost:
        world.ledger.rows.clear()
    world.time += 13 * DAY
    world.send(world.orders[0])
    world.until_quiet()
    [row] = world.ledger.rows.values()
    assert row.state is ChargeState.SUCCEEDED
    assert list(world.ledger.settled_as.values()) == [first.id]
    assert world.stripe.charges == [first]
