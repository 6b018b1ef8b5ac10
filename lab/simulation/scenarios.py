"""The worlds of the simulation, each by its name: what may go wrong in it, and how likely it is."""

from dataclasses import replace

from lab.simulation.world import Scenario
from tests.shop.builders import DAY

_GOOD, _DECLINED, _3DS = "pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_threeDSecure2Required"
_UNKNOWN, _FICKLE, _LOST_CARD = "pm_unknown", "pm_fickle", "pm_card_visa_chargeDeclinedLostCard"

_ONE_ATTEMPT = {
    # The same message twice, then again after hours or days, with the row lost meanwhile.
    "rows lost between deliveries": Scenario(
        fault_probability=0.1,
        crash_probability=0.05,
        jump_probability=0.05,
        redeliveries=1,
        lose_rows=True,
        search_lag_seconds=1800,
    ),
    # A card that pays beside one that is declined; a deploy changes what later messages say.
    "two cards, changed messages, redrives": Scenario(
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
    "zombies, a search that lags an hour": Scenario(
        fault_probability=0.15, crash_probability=0.03, jump_probability=0.05, zombies=True, search_lag_seconds=3600
    ),
    "changed messages": Scenario(copies=1, fault_probability=0.2, crash_probability=0.1, redeliveries=1, tampered=True),
    "3-D Secure": Scenario(orders=((_3DS,),), fault_probability=0.1, crash_probability=0.1, jump_probability=0.05),
    "redrives, a search that lags an hour": Scenario(
        copies=1, fault_probability=0.2, crash_probability=0.1, redrive_probability=0.25, search_lag_seconds=3600
    ),
    # Three deliveries at once, and little else.
    "three deliveries at once": Scenario(
        copies=3, fault_probability=0.02, crash_probability=0.03, jump_probability=0.05
    ),
}

_SEVERAL_ATTEMPTS = {
    # A new card after a decline.
    "another card after a decline": Scenario(
        orders=((_DECLINED, _GOOD),), copies=1, fault_probability=0.1, crash_probability=0.05
    ),
    "another card after a decline, zombies": Scenario(
        orders=((_DECLINED, _GOOD),),
        fault_probability=0.01,
        crash_probability=0.01,
        jump_probability=0.3,
        zombies=True,
    ),
    # The same card again: its decline before is not this attempt's. A payment method that Stripe does not know.
    "the same card again, an unknown card": Scenario(
        orders=((_DECLINED, _DECLINED), (_UNKNOWN, _GOOD)),
        copies=1,
        fault_probability=0.05,
        crash_probability=0.05,
        redeliveries=1,
        redrive_probability=0.2,
    ),
    # A card that its issuer advised not to try again; an update clears the decline that says so.
    "a refused card again": Scenario(
        orders=((_LOST_CARD, _LOST_CARD, _GOOD),),
        copies=1,
        fault_probability=0.1,
        crash_probability=0.05,
        jump_probability=0.05,
        redrive_probability=0.1,
        persons_update=True,
    ),
    # A card that is now declined, now pays: a second confirm would be a second chance.
    "a fickle card, zombies": Scenario(
        orders=((_FICKLE, _FICKLE),),
        fault_probability=0.05,
        crash_probability=0.05,
        jump_probability=0.1,
        zombies=True,
    ),
    # A card that needs 3-D Secure, and another one while the customer is at the bank.
    "3-D Secure, another card": Scenario(
        orders=((_3DS, _GOOD), (_3DS, _3DS)), copies=1, fault_probability=0.05, crash_probability=0.05
    ),
}

_CANCELED = {
    # A card that is declined while its customer cancels.
    "a declined order is canceled": Scenario(
        orders=((_DECLINED,),), copies=1, fault_probability=0.03, crash_probability=0.1, cancels=True
    ),
    # Customers who change their minds, while their card is charged or while they are at their bank.
    "customers cancel": Scenario(
        copies=1, fault_probability=0.1, crash_probability=0.05, jump_probability=0.05, cancels=True
    ),
    "customers cancel during 3-D Secure": Scenario(
        orders=((_3DS,),),
        copies=1,
        fault_probability=0.03,
        crash_probability=0.03,
        jump_probability=0.05,
        redrive_probability=0.1,
        cancels=True,
        reconciles=True,
    ),
    "customers cancel, rows lost between deliveries": Scenario(
        copies=1,
        fault_probability=0.1,
        jump_probability=0.05,
        redeliveries=1,
        lose_rows=True,
        cancels=True,
        search_lag_seconds=1800,
    ),
}

_UPDATED_BY_HAND = {
    # A declined PaymentIntent whose last error an update has cleared.
    "a person updates in the Dashboard": Scenario(
        orders=((_DECLINED, _GOOD), (_FICKLE,)),
        copies=1,
        fault_probability=0.1,
        crash_probability=0.1,
        persons_update=True,
        reconciles=True,
    ),
    "a person updates in the Dashboard, harsh Stripe": Scenario(
        orders=((_DECLINED, _GOOD), (_FICKLE, _FICKLE)),
        copies=1,
        fault_probability=0.15,
        crash_probability=0.05,
        persons_update=True,
        harsh_stripe=True,
    ),
}

_ACCOUNTS = {
    # Card payments are not active for the account, for a while.
    "card payments are not active": Scenario(
        copies=1, fault_probability=0.05, crash_probability=0.05, cards_inactive_probability=0.1, redeliveries=1
    ),
    "an account without search, rows lost": Scenario(
        copies=1, fault_probability=0.05, crash_probability=0.05, redeliveries=2, lose_rows=True, has_search=False
    ),
}

_CANCELED_BY_HAND = {
    # A person cancels in Stripe's Dashboard: before the confirm, during 3-D Secure, after a decline.
    "a person cancels in the Dashboard": Scenario(
        orders=((_GOOD,), (_3DS, _GOOD), (_DECLINED, _GOOD)),
        copies=1,
        fault_probability=0.05,
        crash_probability=0.05,
        jump_probability=0.05,
        redeliveries=1,
        persons_cancel=True,
        reconciles=True,
        webhooks=True,
    ),
    # What only a lookup finds.
    "a person cancels in the Dashboard, rows lost": Scenario(
        copies=1,
        fault_probability=0.05,
        crash_probability=0.1,
        redeliveries=2,
        lose_rows=True,
        persons_cancel=True,
        search_lag_seconds=1800,
    ),
}

_RECONCILED = {
    # A customer at the bank, and a new card if the bank says no.
    "3-D Secure, the reconciler": Scenario(
        orders=((_3DS, _GOOD),),
        copies=1,
        fault_probability=0.02,
        crash_probability=0.03,
        jump_probability=0.05,
        reconciles=True,
    ),
    # Messages that land in the DLQ: for days only the reconciler visits their rows.
    "the DLQ, rows lost, the reconciler": Scenario(
        copies=1,
        fault_probability=0.08,
        crash_probability=0.05,
        redeliveries=1,
        redrive_probability=0.3,
        lose_rows=True,
        reconciles=True,
        search_lag_seconds=600,
    ),
}

_WEBHOOKS = {
    # The same customer, and Stripe's events besides: early, late, duplicate, in any order, and some never.
    "3-D Secure, webhooks and the reconciler": Scenario(
        orders=((_3DS, _GOOD),),
        copies=1,
        fault_probability=0.05,
        crash_probability=0.03,
        jump_probability=0.05,
        reconciles=True,
        webhooks=True,
    ),
    # Rows that are lost while the customer is at the bank.
    "3-D Secure, rows lost, webhooks and the reconciler": Scenario(
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
    # Only webhooks report what the bank decided, and no message waits for it.
    "3-D Secure, webhooks alone": Scenario(
        orders=((_3DS,), (_3DS,)),
        fault_probability=0.1,
        crash_probability=0.05,
        jump_probability=0.05,
        search_lag_seconds=600,
        webhooks=True,
    ),
}

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
    "another card after a decline, harsh Stripe": replace(
        _ATTACK, orders=((_DECLINED, _GOOD),), copies=1, harsh_stripe=True
    ),
    "harsh Stripe, rows lost": replace(_ATTACK, harsh_stripe=True, row_loss_probability=0.03),
    "unstored 502s, rows lost between deliveries": replace(
        _UNSTORED, lose_rows=True, redeliveries=2, waits_seconds=(960, 3600)
    ),
    "unstored 502s, rows lost at any step": replace(_UNSTORED, row_loss_probability=0.005),
    "several cards, rows lost and stale": replace(
        _ATTACK, orders=((_DECLINED, _GOOD),), copies=1, row_loss_probability=0.02, stale_row_probability=0.02
    ),
    "refusals that a key stores": replace(
        _ATTACK, harsh_stripe=True, fault_probability=0.15, only_stripe_faults=frozenset({"403 stored", "drop after"})
    ),
    "processing, and late 500s": replace(
        _ATTACK,
        harsh_stripe=True,
        fault_probability=0.15,
        only_stripe_faults=frozenset({"processing", "500, processing", "500, executed an hour later", "drop after"}),
    ),
    "a fickle card, harsh Stripe, rows lost and stale": replace(
        _ATTACK,
        # The second order's row may be lost after its decline and its keys forgotten: then the same attempt is charged.
        orders=((_FICKLE, _FICKLE, _GOOD), (_FICKLE,)),
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
    # Nobody but the reconciler hears of another card on the customer's page.
    "3-D Secure, the reconciler alone, clocks differ by 40 minutes": Scenario(
        orders=((_3DS,), (_3DS,)),
        copies=1,
        jump_probability=0.05,
        reconciles=True,
        clock_skew_seconds=2400,
    ),
    "Stripe's limit is reached": replace(_ATTACK, rate_limited=True, jump_probability=0.3, zombies=True),
    "Stripe's limit is reached, customers cancel, rows lost and stale": replace(
        _ATTACK,
        orders=((_DECLINED, _GOOD),),
        rate_limited=True,
        cancels=True,
        row_loss_probability=0.03,
        stale_row_probability=0.02,
    ),
    "a person cancels, rows lost and stale": replace(
        _ATTACK, copies=1, persons_cancel=True, row_loss_probability=0.02, stale_row_probability=0.02
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
        persons_cancel=True,
        persons_update=True,
        reconciles=True,
        webhooks=True,
    ),
}
"""Worlds with unreliable clocks, rows that are lost or stale at any step, and the harshest Stripe."""

SCENARIOS = {
    **_ONE_ATTEMPT,
    **_SEVERAL_ATTEMPTS,
    **_CANCELED,
    **_UPDATED_BY_HAND,
    **_ACCOUNTS,
    **_CANCELED_BY_HAND,
    **_RECONCILED,
    **_WEBHOOKS,
    **ATTACKS,
}
"""Each of them once: where `make mutants` searches."""

RANDOM_SCENARIOS = (*_ONE_ATTEMPT.values(),) * 4 + (*SCENARIOS.values(),)
"""In turn; the short ones five times."""
