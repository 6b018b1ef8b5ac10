"""Many schedules: every one that there is of a small scenario, or many random ones of larger scenarios."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from testing.simulation.choices import GivenChoices, ScriptedChoices, SeededChoices, shortened
from testing.simulation.world import DAY, Scenario, Violation, World

Mutate = Callable[[World], None]


def no_mutation(world: World) -> None:
    """The protocol as it is."""


_GOOD, _DECLINED, _3DS = "pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_threeDSecure2Required"
_UNKNOWN, _FICKLE = "pm_unknown", "pm_fickle"

_ONE_ATTEMPT = (
    # The same message twice, then again after hours or days, with the row lost meanwhile.
    Scenario(
        fault_probability=0.1,
        crash_probability=0.05,
        jump_probability=0.05,
        redeliveries=1,
        lose_rows=True,
        search_lag_seconds=1800,
    ),
    # A card that pays beside one that is declined; a deploy changes what later messages say.
    Scenario(
        orders=((_GOOD,), (_DECLINED,)),
        copies=1,
        fault_probability=0.1,
        crash_probability=0.05,
        jump_probability=0.05,
        redeliveries=1,
        redrive_probability=0.1,
        tampered=True,
    ),
    # Workers that live on past their timeout, and a search that lags as much as it may.
    Scenario(
        fault_probability=0.15, crash_probability=0.03, jump_probability=0.05, zombies=True, search_lag_seconds=3600
    ),
    Scenario(copies=1, fault_probability=0.2, crash_probability=0.1, redeliveries=1, tampered=True),
    Scenario(orders=((_3DS,),), fault_probability=0.1, crash_probability=0.1, jump_probability=0.05),
    Scenario(copies=1, fault_probability=0.2, crash_probability=0.1, redrive_probability=0.25, search_lag_seconds=3600),
    # Three deliveries at once, and little else.
    Scenario(copies=3, fault_probability=0.02, crash_probability=0.03, jump_probability=0.05),
)

_SEVERAL_ATTEMPTS = (
    # A new card after a decline.
    Scenario(orders=((_DECLINED, _GOOD),), copies=1, fault_probability=0.1, crash_probability=0.05),
    Scenario(
        orders=((_DECLINED, _GOOD),),
        fault_probability=0.01,
        crash_probability=0.01,
        jump_probability=0.3,
        zombies=True,
    ),
    # The same card again: its decline before is not this attempt's. A payment method that Stripe does not know.
    Scenario(
        orders=((_DECLINED, _DECLINED), (_UNKNOWN, _GOOD)),
        copies=1,
        fault_probability=0.05,
        crash_probability=0.05,
        redeliveries=1,
        redrive_probability=0.2,
    ),
    # A card that is now declined, now pays: a second confirm would be a second chance.
    Scenario(
        orders=((_FICKLE, _FICKLE),),
        fault_probability=0.05,
        crash_probability=0.05,
        jump_probability=0.1,
        zombies=True,
    ),
    # A card that needs 3-D Secure, and another one while the customer is at the bank.
    Scenario(orders=((_3DS, _GOOD), (_3DS, _3DS)), copies=1, fault_probability=0.05, crash_probability=0.05),
)

_CANCELED = (
    # A card that is declined while its customer cancels.
    Scenario(orders=((_DECLINED,),), copies=1, fault_probability=0.03, crash_probability=0.1, cancels=True),
    # Customers who change their minds, while their card is charged or while they are at their bank.
    Scenario(copies=1, fault_probability=0.1, crash_probability=0.05, jump_probability=0.05, cancels=True),
    Scenario(
        orders=((_3DS,),),
        copies=1,
        fault_probability=0.03,
        crash_probability=0.03,
        jump_probability=0.05,
        redrive_probability=0.1,
        cancels=True,
        reconciles=True,
    ),
    Scenario(
        copies=1,
        fault_probability=0.1,
        jump_probability=0.05,
        redeliveries=1,
        lose_rows=True,
        cancels=True,
        search_lag_seconds=1800,
    ),
)

_RECONCILED = (
    # A customer at the bank, and a new card if the bank says no.
    Scenario(
        orders=((_3DS, _GOOD),),
        copies=1,
        fault_probability=0.02,
        crash_probability=0.03,
        jump_probability=0.05,
        reconciles=True,
    ),
    # Messages that land in the DLQ, so that for days nobody but the reconciler looks after their rows.
    Scenario(
        copies=1,
        fault_probability=0.08,
        crash_probability=0.05,
        redeliveries=1,
        redrive_probability=0.3,
        lose_rows=True,
        reconciles=True,
        search_lag_seconds=600,
    ),
)

_TOLD_BY_WEBHOOK = (
    # The same customer, with Stripe's events beside it all: early, late, repeated, in any order, and some never.
    Scenario(
        orders=((_3DS, _GOOD),),
        copies=1,
        fault_probability=0.05,
        crash_probability=0.03,
        jump_probability=0.05,
        reconciles=True,
        webhooks=True,
    ),
    # Rows that are lost while the customer is at the bank.
    Scenario(
        orders=((_3DS,),),
        copies=1,
        fault_probability=0.05,
        crash_probability=0.05,
        redeliveries=1,
        redrive_probability=0.1,
        lose_rows=True,
        reconciles=True,
        webhooks=True,
    ),
    # Nobody but the webhooks tells what the bank decided, and no message waits for it.
    Scenario(
        orders=((_3DS,), (_3DS,)),
        fault_probability=0.1,
        crash_probability=0.05,
        jump_probability=0.05,
        search_lag_seconds=600,
        webhooks=True,
    ),
)

_NEARLY_22_HOURS = (0, 78_000, 21 * 3600 + 3000, 22 * 3600 - 30, 22 * 3600 - 1, 22 * 3600 + 1)
_WAITS = (60, 960, 3600, 21 * 3600 + 3000, 22 * 3600 - 11, 22 * 3600, 23 * 3600, DAY, DAY + 3600, 3 * DAY)
_ATTACK = Scenario(
    fault_probability=0.1,
    crash_probability=0.05,
    jump_probability=0.1,
    redeliveries=3,
    placed_ago_seconds=_NEARLY_22_HOURS,
    waits_seconds=_WAITS,
    search_lag_seconds=3600,
)

_UNSTORED = replace(
    _ATTACK,
    harsh_stripe=True,
    only_stripe_faults=frozenset({"502", "drop after"}),
    placed_ago_seconds=(0,),
    waits_seconds=(60, 960, 3600),
    crash_probability=0.01,
)

ATTACKS: dict[str, Scenario] = {
    "age alone": _ATTACK,
    "clocks differ by 299 s": replace(_ATTACK, clock_skew_seconds=299),
    "clocks differ by 40 minutes": replace(_ATTACK, clock_skew_seconds=2400),
    "clocks differ by 299 s, zombies": replace(_ATTACK, clock_skew_seconds=299, zombies=True),
    "rows lost at any step": replace(_ATTACK, row_loss_probability=0.03),
    "rows stale at any step": replace(_ATTACK, stale_row_probability=0.03),
    "rows lost and stale, clocks differ by 299 s": replace(
        _ATTACK, row_loss_probability=0.02, stale_row_probability=0.02, clock_skew_seconds=299
    ),
    "harsh Stripe": replace(_ATTACK, harsh_stripe=True),
    "harsh Stripe, rows lost": replace(_ATTACK, harsh_stripe=True, row_loss_probability=0.03),
    "unstored 502s, rows lost between deliveries": replace(
        _UNSTORED, lose_rows=True, redeliveries=2, waits_seconds=(960, 3600)
    ),
    "unstored 502s, rows lost at any step": replace(_UNSTORED, row_loss_probability=0.005),
    "several cards, rows lost and stale": replace(
        _ATTACK, orders=((_DECLINED, _GOOD),), copies=1, row_loss_probability=0.02, stale_row_probability=0.02
    ),
    "processing, and late 500s": replace(
        _ATTACK,
        harsh_stripe=True,
        fault_probability=0.15,
        only_stripe_faults=frozenset({"processing", "500, processing", "500, executed an hour later", "drop after"}),
    ),
    "a fickle card, harsh Stripe, rows lost and stale": replace(
        _ATTACK,
        orders=((_FICKLE, _FICKLE, _GOOD),),
        harsh_stripe=True,
        zombies=True,
        row_loss_probability=0.01,
        stale_row_probability=0.01,
    ),
    "3-D Secure, another card, rows lost and stale": replace(
        _ATTACK,
        orders=((_3DS, _GOOD),),
        copies=1,
        row_loss_probability=0.01,
        stale_row_probability=0.01,
        reconciles=True,
        webhooks=True,
    ),
    "customers cancel, rows lost": replace(_ATTACK, copies=1, cancels=True, row_loss_probability=0.03),
    "the API key of another account": replace(_ATTACK, wrong_account_probability=0.02),
    "everything": replace(
        _ATTACK,
        orders=((_3DS, _DECLINED, _GOOD),),
        harsh_stripe=True,
        row_loss_probability=0.02,
        stale_row_probability=0.02,
        clock_skew_seconds=2400,
        zombies=True,
        cancels=True,
        reconciles=True,
        webhooks=True,
    ),
}
"""Worlds in which no clock is to be relied on, no row is safe, and Stripe is at its worst."""

SCENARIOS = (*_ONE_ATTEMPT, *_SEVERAL_ATTEMPTS, *_CANCELED, *_RECONCILED, *_TOLD_BY_WEBHOOK, *ATTACKS.values())
"""Each of them once: how mutations are looked for."""

RANDOM_SCENARIOS = (*_ONE_ATTEMPT * 4, *SCENARIOS)
"""In turn; the short ones come five times."""


@dataclass
class Findings:
    """What a number of schedules came to."""

    schedules: int = 0
    steps: int = 0
    seconds: float = 0.0
    violations: list[tuple[str, Violation]] = field(default_factory=list)
    coverage: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, world: World) -> None:
        self.schedules += 1
        violation = violation_of(world)
        if violation is not None:
            self.violations.append((name, violation))
        self.steps += world.steps
        self.coverage += world.coverage

    def __iadd__(self, more: "Findings") -> "Findings":
        self.schedules += more.schedules
        self.steps += more.steps
        self.seconds += more.seconds
        self.violations += more.violations
        self.coverage += more.coverage
        return self

    def as_json(self, seed: int) -> dict[str, object]:
        """The line that `make simulate` prints."""
        return {
            "schedules": self.schedules,
            "steps": self.steps,
            "violations": len(self.violations),
            "schedules_per_second": round(self.schedules / self.seconds),
            "coverage": dict(sorted(self.coverage.items())),
            "seed": seed,
        }


def random_schedules(schedules: int, seed: int, *, first: int = 0, of: Sequence[Scenario] | None = None) -> Findings:
    """So many schedules from the first on, each with choices of its own: the seed repeats all, `seed:number` one."""
    findings, started = Findings(), time.perf_counter()
    for number in range(first, first + schedules):
        findings.add(f"{seed}:{number}", random_world(seed, number, of=of))
    findings.seconds = time.perf_counter() - started
    return findings


def random_chunk(chunk: tuple[int, int], *, seed: int, of: Sequence[Scenario] | None) -> Findings:
    """Part of a run: from which number on, and how many."""
    first, schedules = chunk
    return random_schedules(schedules, seed, first=first, of=of)


def caught(schedules: int, seed: int, mutate: Mutate) -> Findings:
    """Schedules of a broken protocol up to the first that shows it, so many at the most."""
    findings = Findings()
    for number in range(schedules):
        findings.add(f"{seed}:{number}", random_world(seed, number, mutate))
        if findings.violations:
            break
    return findings


def random_world(
    seed: int, number: int, mutate: Mutate = no_mutation, *, of: Sequence[Scenario] | None = None
) -> World:
    """The schedule of that name, to the byte."""
    scenarios = of or (RANDOM_SCENARIOS if mutate is no_mutation else SCENARIOS)
    scenario = scenarios[number % len(scenarios)]
    return World(scenario, SeededChoices(seed * 1_000_003 + number), mutate)


def violation_of(world: World) -> Violation | None:
    """What the schedule comes to."""
    try:
        world.run()
    except Violation as violation:
        return violation
    return None


def minimal(name: str, mutate: Mutate = no_mutation, *, of: Sequence[Scenario] | None = None) -> Violation:
    """The shortest schedule found that breaks the same invariant as the one of that name, `seed:number`."""
    seed, number = map(int, name.split(":"))
    world = random_world(seed, number, mutate, of=of)
    whole = violation_of(world)
    assert whole is not None, f"{name} breaks nothing"

    def shorter(script: Sequence[int]) -> Violation | None:
        violation = violation_of(World(world.scenario, GivenChoices(script), mutate))
        return violation if violation and violation.what == whole.what else None

    assert isinstance(world.choices, SeededChoices)
    script = shortened(world.choices.taken, lambda script: shorter(script) is not None)
    return shorter(script) or whole


def every_script(explore: Callable[[ScriptedChoices], None]) -> Iterator[ScriptedChoices]:
    """Depth first through the whole tree of choices."""
    script: list[int] = []
    while True:
        choices = ScriptedChoices(script)
        explore(choices)
        yield choices
        taken = choices.taken
        while taken and taken[-1] + 1 >= choices.options[len(taken) - 1]:
            taken.pop()
        if not taken:
            return
        script = [*taken[:-1], taken[-1] + 1]


def exhaustive_schedules() -> Findings:
    """Two deliveries of one order: every interleaving at every boundary, with every single crash point, and none."""
    findings, started = Findings(), time.perf_counter()
    scenario = Scenario(copies=2, crash_probability=1.0)

    def explore(choices: ScriptedChoices) -> None:
        findings.add(",".join(map(str, choices.script)), World(scenario, choices))

    for _ in every_script(explore):
        pass
    findings.seconds = time.perf_counter() - started
    return findings
