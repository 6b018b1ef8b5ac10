"""Every crash, every interleaving, every clock that we can think of: one charge, each refund once, both services agree.

CONTRIBUTING.md says how to replay a schedule that fails here.
"""

import pytest

from lab.simulation.choices import SeededChoices
from lab.simulation.explore import KINDS, Findings, exhaustive_schedules, explored, world_of
from lab.simulation.mutants import MUTANTS
from lab.simulation.stored import is_caught
from lab.simulation.world import Scenario, World, violation_of
from onecharge.contract.states import PaymentState
from onecharge.runtime.consumer import BACKOFF_CAP_SECONDS
from tests.shop.builders import DAY, T0

SCHEDULES = {"charges": (300, 5_000), "refunds": (24, 1_000), "seams": (49, 2_000)}
"""By kind: in the gate, and at night."""
SCHEDULES_FOR_A_MUTANT = 4_000
EXHAUSTIVE_SCHEDULES: dict[tuple[int, ...], int] = {
    (0, 0, 1): 6_515,
    (0, 0, 0): 11_445,
    (1, 0, 0): 11_445,
    (1, 0, 1): 6_515,
}
"""By the first choices: which delivery is received first, that it does not crash, which of the two goes on."""
MET = {
    "charges": {
        *("crash before the effect", "crash after the effect", "killed at the time-out", "zombie", "delay"),
        *("days pass", "redrive", "row lost", "row stale", "clock differs", "API key of another account"),
        *("other request", "dynamodb UpdateItem: throttled", "dynamodb UpdateItem: answer lost"),
        *("stripe: stored answer replayed", "stripe create: drop before", "stripe create: drop after"),
        *("stripe create: time-out", "stripe create: 429", "stripe create: 503", "stripe create: 401"),
        *("stripe create: 502 stored", "stripe confirm: drop before", "stripe confirm: drop after"),
        *("stripe confirm: 500 before", "stripe confirm: 500 after", "stripe confirm: 500, executed later"),
        *("stripe confirm: processing", "stripe confirm: canceled by Stripe", "stripe: key pruned"),
        *("3-D Secure decided", "3-D Secure tried again"),
        *("cancel: requested", "canceled in the Dashboard", "metadata edited"),
        *("another shop", "webhook: EventOfAnotherShop", "webhook: WebhookDeferred", "reconciler: ReconcileFailed"),
        *("alarm: Held", "alarm: MoneyDiffers", "alarm: RowLost", "alarm: PaidAfterDecline"),
        *("alarm: RequestRefused", "alarm: StripeInconclusive", "release: store", "release: cancel"),
        *("release: Problem", "release: let the worker create a PaymentIntent: Stripe has none"),
        *("ended: SUCCEEDED", "ended: DECLINED", "ended: CANCELED", "ended with an alarm"),
    },
    "refunds": {
        *("crash before the effect", "crash after the effect", "killed at the time-out", "zombie", "delay"),
        *("clock differs", "API key of another account", "by hand", "bank returns", "held"),
        *("disputed", "put back", "late duplicate", "record lost", "Republished", "sns Publish: refused"),
        *("stripe: key pruned", "stripe: the list lacks a refund", "stripe create refund: balance too low"),
        *("stripe create refund: 500, executed 23 hours later", "dynamodb TransactWriteItems: answer lost"),
        *("dynamodb TransactWriteItems: transaction conflict", "refund: more-than-is-left", "refund: disputed"),
        *("ended: SUCCEEDED", "ended: FAILED", "ended: FAILED at Stripe", "alarm: Overdue"),
    },
    "seams": {
        *("Orders lost", "Orders older", "Payments lost", "Payments older", "record lost", "late duplicate"),
        *("paid again", "cancellation", "requests refused", "refunded by hand", "refunded in full"),
        *("3-D Secure decided", "cart 0 is ordered", "cart 1 is ordered", "cart 1 is ordered: idempotency-key-reused"),
        *("Republished", "restore: its payment is emitted again", "alarm: Held"),
        *(f"ended: {status}" for status in ("PAID", "PAYMENT_DECLINED", "CANCELED")),
    },
}
"""What the schedules of a night may meet, all of it."""


def shown(findings: Findings) -> str:
    return "\n\n".join(f"SEED={name}\n{violation}" for name, violation in findings.violations[:2])


@pytest.mark.parametrize("kind", KINDS)
def test_no_random_schedule_breaks_an_invariant(kind: str, is_nightly: bool) -> None:
    """Crashes, lost answers, throttling, 500s, delays, days, lost rows, changed messages; each of them is met."""
    findings = explored(range(SCHEDULES[kind][is_nightly]), kind, seed=1)
    assert not findings.violations, shown(findings)
    if is_nightly:
        assert MET[kind] - findings.coverage.keys() == set()


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, mutants in MUTANTS.items() for name in mutants])
def test_a_broken_protocol_is_caught(kind: str, name: str) -> None:
    """Each mutant, by the schedule that is stored for it or by another one of its scenario."""
    assert is_caught(kind, name, schedules=SCHEDULES_FOR_A_MUTANT), f"not caught: {name}"


@pytest.mark.nightly
@pytest.mark.parametrize("first", EXHAUSTIVE_SCHEDULES)
def test_two_deliveries_of_one_order_in_every_way(first: tuple[int, ...]) -> None:
    """Every interleaving at every boundary, with no crash and with one at each point: about 36,000 schedules."""
    findings = exhaustive_schedules(first=first)
    assert not findings.violations, shown(findings)
    # One boundary more or less changes the number: then update it above.
    assert findings.schedules == EXHAUSTIVE_SCHEDULES[first]


def test_a_schedule_is_repeated_to_the_byte() -> None:
    """Its name is all that it takes."""
    mutate = MUTANTS["charges"]["a random key for each create"]
    numbers = (number for number in range(5_000) if violation_of(world_of("charges", 1, number, mutate)))
    number = next(numbers)
    once, again = (str(violation_of(world_of("charges", 1, number, mutate))) for _ in range(2))
    assert once == again != "None"


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
        world.lose(world.orders[0].data.order_id)
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
