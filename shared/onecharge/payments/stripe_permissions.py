"""What each function asks of Stripe: the permissions of its own restricted API key, and no more.

docs/guides/stripe-keys.md has the same table with the Dashboard's words; a test compares the two, and another runs each
function with a key that has these permissions. Nothing here is read at run time. Source: Stripe documentation,
"Restricted API keys", "Permissions reference": a write permission includes reading.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum


class Permission(StrEnum):
    """A permission by the name that Stripe's errors have for it, without their `rak_`."""

    PAYMENT_INTENTS_READ = "payment_intent_read"
    PAYMENT_INTENTS_WRITE = "payment_intent_write"
    CHARGES_READ = "charge_read"
    CHARGES_WRITE = "charge_write"
    """Charges and their refunds: the Dashboard has one row for both."""
    EVENTS_READ = "event_read"


PERMISSIONS: Mapping[str, frozenset[Permission]] = {
    "charge_order": frozenset({Permission.PAYMENT_INTENTS_WRITE}),
    "reconcile": frozenset(
        {
            Permission.PAYMENT_INTENTS_WRITE,
            Permission.EVENTS_READ,
            Permission.CHARGES_READ,
            # A canceled order that was charged is refunded by whoever notices.
            Permission.CHARGES_WRITE,
        }
    ),
    "refund_charge": frozenset({Permission.CHARGES_WRITE}),
    "payment_questions": frozenset(
        {
            Permission.PAYMENT_INTENTS_READ,
            Permission.PAYMENT_INTENTS_WRITE,
        }
    ),
    "stripe_webhook": frozenset(
        {
            Permission.PAYMENT_INTENTS_WRITE,
            Permission.CHARGES_READ,
            Permission.CHARGES_WRITE,
        }
    ),
    "stripe_eventbridge": frozenset(
        {
            Permission.PAYMENT_INTENTS_WRITE,
            Permission.CHARGES_READ,
            Permission.CHARGES_WRITE,
        }
    ),
}
"""By function. Where a write is listed, the read of the same resource is included in it."""


def without_included(permissions: Iterable[Permission]) -> list[str]:
    """What a person ticks: no read of a resource that is written as well."""
    given = set(permissions)
    return sorted(each for each in given if f"{each.removesuffix('_read')}_write" not in given)
