"""The worlds of the simulation, each by its name: what may go wrong in it, and how likely it is."""

from dataclasses import replace
from typing import Any

from lab.simulation.world import Scenario
from tests.shop.builders import DAY, HOUR

_GOOD, _DECLINED, _3DS = "pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_threeDSecure2Required"
_FAULTS: dict[str, Any] = {"fault_probability": 0.1, "crash_probability": 0.05, "jump_probability": 0.05}
_CALM: dict[str, Any] = {"copies": 1, "fault_probability": 0.05, "crash_probability": 0.05}
_TOLD: dict[str, Any] = {"reconciles": True, "webhooks": True}
_ROWS_GO: dict[str, Any] = {"row_loss_probability": 0.02, "stale_row_probability": 0.02}
_CLOCKS_DIFFER: dict[str, Any] = {"clock_skew_seconds": 2400}
_ATTACK = Scenario(
    fault_probability=0.1,
    crash_probability=0.05,
    jump_probability=0.1,
    redeliveries=3,
    placed_ago_seconds=(0, 78_000, 21 * HOUR + 3000, 22 * HOUR - 30, 22 * HOUR - 1, 22 * HOUR + 1),
    waits_seconds=(60, 960, HOUR, 21 * HOUR + 3000, 22 * HOUR - 11, 22 * HOUR, 23 * HOUR, DAY, DAY + HOUR, 3 * DAY),
)
_RELEASED: dict[str, Any] = {"fault_probability": 0.01, "crash_probability": 0.1, "waits_seconds": (60, 960, HOUR)}

_SHORT = {
    "rows lost between deliveries": Scenario(**_FAULTS, redeliveries=1, lose_rows=True),
    # A deployment changes what later messages say.
    "two cards, changed messages": Scenario(
        orders=((_GOOD,), (_DECLINED,)), copies=1, **_FAULTS, redeliveries=1, redrive_probability=0.1, tampered=True
    ),
    "zombies": Scenario(fault_probability=0.15, crash_probability=0.03, jump_probability=0.1, zombies=True),
    "3-D Secure": Scenario(orders=((_3DS,),), **_FAULTS),
    "redrives": Scenario(copies=1, fault_probability=0.2, crash_probability=0.1, redrive_probability=0.25),
    "three deliveries at once": Scenario(
        copies=3, fault_probability=0.02, crash_probability=0.03, jump_probability=0.05
    ),
}
_LONGER = {
    "another card after a decline, zombies": Scenario(
        orders=((_DECLINED, _GOOD),), fault_probability=0.01, crash_probability=0.01, jump_probability=0.3, zombies=True
    ),
    "the same card again, an unknown card": Scenario(
        orders=((_DECLINED, _DECLINED), ("pm_unknown", _GOOD)), **_CALM, redeliveries=1, redrive_probability=0.2
    ),
    "3-D Secure, the reconciler alone": Scenario(
        orders=((_3DS,), (_3DS,)), copies=1, jump_probability=0.05, reconciles=True, **_CLOCKS_DIFFER
    ),
    "3-D Secure, rows lost": Scenario(
        orders=((_3DS,),), **_CALM, redeliveries=3, redrive_probability=0.1, lose_rows=True, **_TOLD
    ),
    "customers cancel": Scenario(orders=((_DECLINED,), (_3DS,)), **_CALM, cancels=True, reconciles=True),
    "customers cancel, rows lost": Scenario(copies=1, **_FAULTS, redeliveries=2, lose_rows=True, cancels=True),
    "card payments are not active": Scenario(**_CALM, cards_inactive_probability=0.1, redeliveries=1),
    "the API key is of another account": Scenario(**_CALM, redeliveries=1, wrong_account_probability=0.02),
    "persons act at Stripe, rows lost": Scenario(
        orders=((_3DS, _GOOD), (_DECLINED, _GOOD)),
        **_CALM,
        redeliveries=2,
        lose_rows=True,
        persons=("cancel", "edit"),
        **_TOLD,
    ),
    "two shops in one account": Scenario(**_CALM, redeliveries=1, lose_rows=True, two_shops=True, **_TOLD),
    "the operator's key is another account's": Scenario(
        orders=((_GOOD,), (_GOOD,)),
        copies=1,
        crash_probability=0.1,
        redeliveries=4,
        redrive_probability=0.2,
        waits_seconds=(23 * HOUR, DAY),
        lose_rows=True,
        row_loss_probability=0.02,
        operates_with_other_key=True,
    ),
    "connections break": Scenario(
        copies=1, fault_probability=0.3, stripe_faults=frozenset({"drop before", "drop after", "time-out"})
    ),
    # Unreliable clocks, rows that are lost or stale at any step, and the harshest Stripe.
    "rows lost and stale, clocks differ": replace(_ATTACK, **_ROWS_GO, **_CLOCKS_DIFFER),
    "changed messages, rows lost and stale": replace(_ATTACK, **_ROWS_GO, tampered=True),
    # Orders that are held from the beginning, and released again and again.
    "released, rows lost and stale": replace(
        _ATTACK, **_RELEASED, **_ROWS_GO, copies=1, redeliveries=6, placed_ago_seconds=(2 * DAY,)
    ),
    # Of two PaymentIntents one is kept, and a row is put back that names the other one.
    "released beside another, rows put back": replace(
        _ATTACK,
        **_CLOCKS_DIFFER,
        crash_probability=0.02,
        stripe_faults=frozenset({"500 after"}),
        row_loss_probability=0.05,
        stale_row_probability=0.05,
        redeliveries=6,
        placed_ago_seconds=(22 * HOUR + 1,),
        waits_seconds=(960, HOUR),
    ),
    # Released while a worker whose clock is behind may still create.
    "released, clocks differ": replace(
        _ATTACK,
        **{**_RELEASED, "fault_probability": 0.02, "crash_probability": 0.05},
        **_CLOCKS_DIFFER,
        row_loss_probability=0.04,
        redeliveries=2,
        placed_ago_seconds=(22 * HOUR + 1,),
    ),
    "harsh Stripe": replace(_ATTACK, stripe_faults=None),
    "processing, and late 500s": replace(
        _ATTACK,
        fault_probability=0.15,
        stripe_faults=frozenset(
            {"processing", "500, processing", "canceled by Stripe", "500, executed an hour later", "drop after"}
        ),
    ),
    "3-D Secure, another card, rows lost and stale": replace(
        _ATTACK, **_ROWS_GO, **_TOLD, orders=((_3DS, _GOOD),), copies=1
    ),
    "everything": replace(
        _ATTACK,
        **_ROWS_GO,
        **_TOLD,
        **_CLOCKS_DIFFER,
        orders=((_3DS, _DECLINED, _GOOD),),
        stripe_faults=None,
        zombies=True,
        cancels=True,
        persons=("cancel", "edit"),
        two_shops=True,
    ),
}

SCENARIOS = {**_SHORT, **_LONGER}
IN_TURN = (*_SHORT,) * 3 + (*SCENARIOS,)
"""The short ones four times."""
