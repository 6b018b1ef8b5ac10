"""Refunds under crashes, lost answers, throttling, 500s, delays, days and lost rows: each of them once."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from onecharge.deliveries import Disposition
from onecharge.events import RefundRequestedEvent
from refund_charge.protocol import FoundRefund, FrozenRefund, RefundReply
from refund_charge.refund import RefundCharge
from refund_charge.stripe_refunds import StripeRefunds
from tests.simulation.choices import SeededChoices
from tests.simulation.refunds import RefundWorld
from tests.simulation.world import DAY, Scenario, Violation

SCHEDULES = 3000
SCENARIOS = (
    Scenario(fault_probability=0.1, crash_probability=0.05, jump_probability=0.05, redeliveries=2, lose_rows=True),
    Scenario(copies=1, fault_probability=0.2, crash_probability=0.1, redrive_probability=0.2, redeliveries=1),
    Scenario(fault_probability=0.1, crash_probability=0.03, jump_probability=0.2, zombies=True),
)
MET = {
    *("crash before the effect", "crash after the effect", "killed at the time-out", "zombie", "delay", "days pass"),
    *("DLQ", "redrive", "row lost", "stripe: key pruned", "dynamodb UpdateItem: throttled"),
    *("dynamodb UpdateItem: answer lost", "stripe refund: drop before", "stripe refund: drop after"),
    *("stripe refund: time-out", "stripe refund: 429", "stripe refund: 503", "stripe refund: 401"),
    *("stripe refund: 500 before", "stripe refund: 500 after", "stripe refunds: drop before"),
}
"""Everything that a schedule of refunds may meet."""

Break = Callable[[RefundWorld], None]


def explore(break_refunds: Break, schedules: int) -> tuple[Violation | None, Counter[str]]:
    """The first violation, if there is one, and what was met."""
    coverage: Counter[str] = Counter()
    for number in range(schedules):
        scenario = SCENARIOS[number % len(SCENARIOS)]
        world = RefundWorld(scenario, SeededChoices(number), break_refunds=break_refunds)
        try:
            world.run()
        except Violation as violation:
            return violation, coverage
        coverage += world.coverage
    return None, coverage


def test_three_thousand_schedules_of_refunds() -> None:
    """No refund twice, never more than was paid, none lost; and every fault was met."""
    violation, coverage = explore(lambda world: None, SCHEDULES)
    assert violation is None, violation
    assert coverage.keys() >= MET


def key_with_a_random_part(world: RefundWorld) -> None:
    numbers = itertools.count()

    class OtherKeys(StripeRefunds):
        def refund(self, request: FrozenRefund, idempotency_key: str) -> RefundReply:
            return super().refund(request, f"{idempotency_key}:{next(numbers)}")

    _with(world, OtherKeys)


def a_look_that_sees_nothing(world: RefundWorld) -> None:
    class Blind(StripeRefunds):
        def look(self, request: FrozenRefund) -> list[FoundRefund]:
            super().look(request)
            return []

    _with(world, Blind)


def a_look_that_sees_all_refunds_of_the_order(world: RefundWorld) -> None:
    class Undiscerning(StripeRefunds):
        def look(self, request: FrozenRefund) -> list[FoundRefund]:
            refunds = self.client.v1.refunds.list({"payment_intent": request.payment_intent_id}).data
            return [FoundRefund(each.id, "succeeded", each.amount, "EUR") for each in refunds]

    _with(world, Undiscerning)


def no_freshness_rule(world: RefundWorld) -> None:
    class Fresh(RefundCharge):
        """Believes that every refund was requested just now."""

        def __call__(self, event: RefundRequestedEvent) -> Disposition:
            data = event.data.model_copy(update={"requested_at": datetime.fromtimestamp(world.time, UTC)})
            return super().__call__(event.model_copy(update={"data": data}))

    world.refund_charge = Fresh(**vars(world.refund_charge))


def no_fencing(world: RefundWorld) -> None:
    world.dynamodb.ignored_conditions.append("AND fencing_token = :ours")


def _with(world: RefundWorld, mutant: type[StripeRefunds]) -> None:
    world.refund_charge = replace(world.refund_charge, refunds=mutant(world.refund_charge.refunds.client))


MUTANTS: Mapping[str, Break] = {
    "key with a random part": key_with_a_random_part,
    "a look that sees nothing": a_look_that_sees_nothing,
    "a look that sees all refunds of the order": a_look_that_sees_all_refunds_of_the_order,
    "no freshness rule": no_freshness_rule,
    "no fencing": no_fencing,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_refund_protocol_is_caught(name: str) -> None:
    """Each mutation of it."""
    violation, _ = explore(MUTANTS[name], SCHEDULES)
    assert violation is not None, f"not caught: {name}"


def test_a_refund_redriven_on_day_13_is_not_made_again() -> None:
    """Its worker crashed between refund and settle, and Stripe has forgotten the key."""
    world = RefundWorld(Scenario(copies=1), SeededChoices(1))
    world.send(world.orders[0])
    world.until_quiet()
    refund = world.refund(0, 400)
    world._send(refund.model_dump_json())
    while not any(worker.label == "stripe refund answered" for worker in world.workers):
        world.step()
    world.crash(world.workers[0])
    world.queue.clear()
    world.pass_time(13 * DAY)
    world.stripe.keys.clear()
    world._send(refund.model_dump_json())
    world.until_quiet()
    assert [refund.amount for refund in world.stripe.refunds] == [400]
    world.check_refund(refund)
