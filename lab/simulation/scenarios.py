"""The worlds of the simulation, each by its name: what may go wrong in it, and how likely it is."""

from dataclasses import replace
from typing import Any

from lab.simulation.world import Scenario
from tests.shop.builders import DAY

_GOOD, _DECLINED, _3DS = "pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_threeDSecure2Required"
_UNKNOWN = "pm_unknown"
_FAULTS: dict[str, Any] = {"fault_probability": 0.1, "crash_probability": 0.05, "jump_probability": 0.05}
_ROWS_GO: dict[str, Any] = {"row_loss_probability": 0.02, "stale_row_probability": 0.02}
_SHORT = {
    # The same message twice, then again after hours or days, with the row lost meanwhile.
    "rows lost between deliveries": Scenario(**_FAULTS, redeliveries=1, lose_rows=True),
    # A deployment changes what later messages say.
    "two cards, changed messages, redrives": Scenario(
        orders=((_GOOD,), (_DECLINED,)), copies=1, **_FAULTS, redeliveries=1, redrive_probability=0.1, tampered=True
    ),
    # Workers that live on past their timeout.
    "zombies": Scenario(fault_probability=0.15, crash_probability=0.03, jump_probability=0.1, zombies=True),
    "3-D Secure": Scenario(orders=((_3DS,),), **_FAULTS),
    "redrives": Scenario(copies=1, fault_probability=0.2, crash_probability=0.1, redrive_probability=0.25),
    # Three deliveries at once, and little else.
    "three deliveries at once": Scenario(
        copies=3, fault_probability=0.02, crash_probability=0.03, jump_probability=0.05
    ),
}
_CALM: dict[str, Any] = {"copies": 1, "fault_probability": 0.05, "crash_probability": 0.05}
_TOLD: dict[str, Any] = {"reconciles": True, "webhooks": True}
_LONGER = {
    "another card after a decline, zombies": Scenario(
        orders=((_DECLINED, _GOOD),), fault_probability=0.01, crash_probability=0.01, jump_probability=0.3, zombies=True
    ),
    "the same card again, an unknown card": Scenario(
        orders=((_DECLINED, _DECLINED), (_UNKNOWN, _GOOD)), **_CALM, redeliveries=1, redrive_probability=0.2
    ),
    "3-D Secure, the reconciler alone": Scenario(
        orders=((_3DS,), (_3DS,)), copies=1, jump_probability=0.05, reconciles=True, clock_skew_seconds=2400
    ),
    "3-D Secure, rows lost": Scenario(
        orders=((_3DS,),), **_CALM, redeliveries=3, redrive_probability=0.1, lose_rows=True, **_TOLD
    ),
    "a declined order is canceled": Scenario(orders=((_DECLINED,),), **_CALM, cancels=True),
    "customers cancel during 3-D Secure": Scenario(
        orders=((_3DS,),), **_CALM, redrive_probability=0.1, cancels=True, reconciles=True
    ),
    "customers cancel, rows lost": Scenario(copies=1, **_FAULTS, redeliveries=2, lose_rows=True, cancels=True),
    "card payments are not active": Scenario(**_CALM, cards_inactive_probability=0.1, redeliveries=1),
    "persons act at Stripe": Scenario(
        orders=((_GOOD,), (_3DS, _GOOD), (_DECLINED, _GOOD)),
        **_CALM,
        redeliveries=1,
        persons=frozenset({"cancel", "edit"}),
        **_TOLD,
    ),
    "persons act at Stripe, rows lost": Scenario(
        orders=((_3DS,), (_GOOD,)),
        **_CALM,
        redeliveries=2,
        lose_rows=True,
        persons=frozenset({"cancel", "edit"}),
        **_TOLD,
    ),
    "two shops in one account": Scenario(**_CALM, redeliveries=1, lose_rows=True, two_shops=True, **_TOLD),
    "the operator's key is another account's": Scenario(
        orders=((_GOOD,), (_GOOD,)),
        copies=1,
        crash_probability=0.1,
        redeliveries=4,
        redrive_probability=0.2,
        waits_seconds=(23 * 3600, DAY),
        lose_rows=True,
        row_loss_probability=0.02,
        operates_with_other_key=True,
    ),
    "connections break": Scenario(
        copies=1, fault_probability=0.3, only_stripe_faults=frozenset({"drop before", "drop after", "time-out"})
    ),
}

_AGES = (0, 78_000, 21 * 3600 + 3000, 22 * 3600 - 30, 22 * 3600 - 1, 22 * 3600 + 1)
_WAITS = (60, 960, 3600, 21 * 3600 + 3000, 22 * 3600 - 11, 22 * 3600, 23 * 3600, DAY, DAY + 3600, 3 * DAY)
_ATTACK = Scenario(
    fault_probability=0.1,
    crash_probability=0.05,
    jump_probability=0.1,
    redeliveries=3,
    placed_ago_seconds=_AGES,
    waits_seconds=_WAITS,
)
ATTACKS: dict[str, Scenario] = {
    "clocks differ by 40 minutes": replace(_ATTACK, clock_skew_seconds=2400),
    "rows lost and stale, clocks differ by 40 minutes": replace(_ATTACK, **_ROWS_GO, clock_skew_seconds=2400),
    "changed messages, rows lost and stale": replace(_ATTACK, **_ROWS_GO, tampered=True),
    # Orders that are held from the beginning, and released again and again.
    "released, rows lost and stale": replace(
        _ATTACK,
        copies=1,
        redeliveries=6,
        fault_probability=0.01,
        crash_probability=0.1,
        placed_ago_seconds=(2 * DAY,),
        waits_seconds=(960, 3600),
        row_loss_probability=0.02,
        stale_row_probability=0.02,
    ),
    # Released while a worker whose clock is behind may still create.
    "released, clocks differ by 40 minutes": replace(
        _ATTACK,
        fault_probability=0.02,
        crash_probability=0.05,
        redeliveries=2,
        placed_ago_seconds=(22 * 3600 + 1,),
        waits_seconds=(60, 960),
        row_loss_probability=0.04,
        clock_skew_seconds=2400,
    ),
    "harsh Stripe": replace(_ATTACK, harsh_stripe=True),
    "failures that a key stores": replace(
        _ATTACK,
        harsh_stripe=True,
        fault_probability=0.3,
        crash_probability=0.02,
        only_stripe_faults=frozenset({"403 stored", "502 stored", "500 before", "500, executed an hour later"}),
    ),
    "processing, and late 500s": replace(
        _ATTACK,
        harsh_stripe=True,
        fault_probability=0.15,
        only_stripe_faults=frozenset({"processing", "500, processing", "500, executed an hour later", "drop after"}),
    ),
    "several cards, rows lost and stale": replace(_ATTACK, **_ROWS_GO, orders=((_DECLINED, _GOOD),), copies=1),
    "3-D Secure, another card, rows lost and stale": replace(
        _ATTACK, **_ROWS_GO, **_TOLD, orders=((_3DS, _GOOD),), copies=1
    ),
    "a person cancels, rows lost and stale": replace(_ATTACK, **_ROWS_GO, copies=1, persons=frozenset({"cancel"})),
    "customers cancel, rows lost and stale": replace(_ATTACK, **_ROWS_GO, copies=1, cancels=True),
    "everything": replace(
        _ATTACK,
        **_ROWS_GO,
        **_TOLD,
        orders=((_3DS, _DECLINED, _GOOD),),
        harsh_stripe=True,
        clock_skew_seconds=2400,
        zombies=True,
        cancels=True,
        persons=frozenset({"cancel", "edit"}),
        two_shops=True,
    ),
}
"""Worlds with unreliable clocks, rows that are lost or stale at any step, and the harshest Stripe."""

SCENARIOS = {**_SHORT, **_LONGER, **ATTACKS}
IN_TURN = (*_SHORT,) * 3 + (*SCENARIOS,)
"""The short ones four times."""
