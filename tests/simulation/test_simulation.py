"""Every crash, every interleaving, every clock that we can think of, and one charge."""

import pytest

from onecharge.contract.states import PaymentState
from onecharge.runtime.consumer import BACKOFF_CAP_SECONDS
from testing.simulation.choices import SeededChoices
from testing.simulation.explore import Findings, caught, exhaustive_schedules, minimal, random_schedules, random_world
from testing.simulation.mutants import MUTANTS
from testing.simulation.scenarios import SCENARIOS
from testing.simulation.world import DAY, T0, Scenario, Violation, World

SCHEDULES, SCHEDULES_DEEP = 4_000, 10_000
SCHEDULES_FOR_A_MUTANT, SCHEDULES_FOR_A_MUTANT_DEEP = 3_000, 20_000
EXHAUSTIVE_SCHEDULES = {0: 17_961, 1: 17_961}
"""By the first choice: which of the two deliveries is received first. 35,922 in all."""

MET = {
    *("crash before the effect", "crash after the effect", "killed at the time-out", "zombie", "delay", "days pass"),
    *("DLQ", "redrive", "row lost", "row stale", "clock differs", "other request", "API key of another account"),
    *("stripe: key pruned", "stripe search: lags", "stripe: stored answer replayed", "charged after DECLINED"),
    *("dynamodb UpdateItem: throttled", "dynamodb UpdateItem: answer lost"),
    *("dynamodb PutItem: throttled", "dynamodb GetItem: throttled", "dynamodb Query: throttled"),
    "dynamodb BatchGetItem: throttled",
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
    *("stripe retrieve: drop before", "stripe events: drop before", "lookup: out of time"),
    *("stripe answer: crossed", "a wait for a slot", "slot: none in time"),
    *("3-D Secure decided", "3-D Secure tried again", "client secret: handed out"),
    *("reconciler: Discrepancy.PAID_LATE", "reconciler: Discrepancy.LOST_ROW"),  # Rare without these parts.
    *("client secret: none", "reconciler: Reconciled.SUCCEEDED", "reconciler: Reconciled.DECLINED"),
    *("reconciler: ReconcileInterrupted", "reconciler: ReconcileFailed", "webhook: WebhookDeferred"),
    "cancel: requested",
    *("webhook: Reconciled.SUCCEEDED", "webhook: Reconciled.DECLINED"),
    *("webhook: EventProcessed", "webhook: EventReplayed"),
}
"""Everything that a schedule may meet."""

MET_RARELY = {
    *(
        "stripe create: 502 stored",
        "stripe confirm: 500, executed two days later",
        "stripe confirm: canceled by Stripe",
        "stripe confirm: processing",
        "charged after DECLINED",
    ),
}
"""Once in a few thousand schedules: asserted of the deep run alone."""

CAUGHT_IN = {
    "no condition on the claim": "age alone",
    "no lease in the claim": "unstored 502s, rows lost at any step",
    "lease shorter than Stripe's timeouts": "three deliveries at once",
    "id written without the lease": "another card after a decline, zombies",
    "id written after the confirm": "customers cancel, rows lost between deliveries",
    "finalize without the lease": "clocks differ by 299 s, zombies",
    "finalize without the attempt": "clocks differ by 299 s, zombies",
    "finalized over a request to cancel": "a declined order is canceled",
    "finalized before it is confirmed": "3-D Secure, the reconciler",
    "what the message says is charged": "two cards, changed messages, redrives",
    "a random key for each create": "rows lost between deliveries",
    "a random key for each confirm": "another card after a decline",
    "a second confirm key: one for each message": "rows lost between deliveries",
    "no lookup past 22 hours": "rows lost and stale, clocks differ by 299 s",
    "lookup only for a new row": "several cards, rows lost and stale",
    "the list alone taken for complete": "rows lost between deliveries",
    "a lookup that ends early taken for complete": "several cards, rows lost and stale",
    "one page of the list taken for complete": "several cards, rows lost and stale",
    "what was found is adopted": "3-D Secure, another card, rows lost and stale",
    "what is found stays open": "everything",
    "what is found canceled is no trace": "customers cancel, rows lost",
    "abandoned taken for canceled": "another card after a decline",
    "CANCELED without Stripe's word": "customers cancel, rows lost between deliveries",
    "canceled for the customer as abandoned": "a declined order is canceled",
    "a request to cancel is overlooked": "a declined order is canceled",
    "a generation beside processing": "harsh Stripe",
    "the next generation without canceling": "harsh Stripe",
    "every decline is this attempt's": "another card after a decline",
    "a decline is tried again": "several cards, rows lost and stale",
    "a stored failure taken for an answer": "another card after a decline",
    "no answer taken for a decline": "changed messages",
    "a 503 taken for a decline": "another card after a decline",
    "a wrong API key taken for a decline": "age alone",
    "the answer to another request is taken": "crossed answers",
    "an answer about another object is taken": "crossed answers",
    "what was retrieved before is taken for a confirm's answer": "crossed answers",
    "who has no slot begins all the same": "Stripe's limit is reached",
    "duplicates acknowledged under a live lease": "zombies, a search that lags an hour",
    "unknown outcomes acknowledged": "redrives, a search that lags an hour",
    "what was received before taken for a duplicate": "3-D Secure",
    "reconciled without the revision": "3-D Secure, rows lost, webhooks and the reconciler",
    "an event is taken for what holds now": "3-D Secure, webhooks alone",
    "late truth is ignored": "3-D Secure, webhooks alone",
    "to the DLQ after three receives": "unstored 502s, rows lost between deliveries",
}
"""Each mutant with the scenario that catches it in the least time, measured over 60 schedules of each scenario."""

CAUGHT_THERE_ALONE = {"a lookup that ends early taken for complete", "one page of the list taken for complete"}
"""Too rare for 20,000 schedules of all scenarios: several PaymentIntents of one order have to be found at once."""


def shown(findings: Findings) -> str:
    return "\n\n".join(f"SEED={name}\n{violation}" for name, violation in findings.violations[:2])


@pytest.mark.parametrize("first", EXHAUSTIVE_SCHEDULES)
def test_two_deliveries_of_one_order_in_every_way(first: int) -> None:
    """Every interleaving at every boundary, with no crash and with one at each point: 35,922 schedules, all run."""
    findings = exhaustive_schedules(first=[first])
    assert not findings.violations, shown(findings)
    # One boundary more or less changes the number: then update it above and in the docstring.
    assert findings.schedules == EXHAUSTIVE_SCHEDULES[first]


def test_no_random_schedule_breaks_an_invariant(is_deep: bool) -> None:
    """Crashes, lost answers, throttling, 500s, delays, days, lost rows, changed messages; each of them is met."""
    schedules = SCHEDULES_DEEP if is_deep else SCHEDULES
    findings = random_schedules(schedules, seed=1)
    assert not findings.violations, shown(findings)
    assert findings.schedules == schedules
    assert (MET if is_deep else MET - MET_RARELY) - findings.coverage.keys() == set()


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_protocol_is_caught(name: str, is_deep: bool) -> None:
    """Each mutation of it: in its scenario within 3,000 schedules, or in all scenarios within 20,000, but for two."""
    if is_deep and name not in CAUGHT_THERE_ALONE:
        findings = caught(SCHEDULES_FOR_A_MUTANT_DEEP, 1, MUTANTS[name])
    else:
        findings = caught(SCHEDULES_FOR_A_MUTANT, 1, MUTANTS[name], of=[SCENARIOS[CAUGHT_IN[name]]])
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
    world.run_until_idle()
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
