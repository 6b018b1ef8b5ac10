"""A look at Stripe, by whoever holds a row: what there is of the attempt, and what follows from it."""

from collections.abc import Callable

from onecharge.payments.protocol import (
    Cancel,
    ChargeRow,
    Confirm,
    LookAgain,
    OpenNewKey,
    Settle,
    after_look,
    reply_for,
)
from onecharge.payments.stripe_gateway import StripeGateway


def look(
    gateway: StripeGateway, row: ChargeRow, clock: Callable[[], int], *, never_sent: bool = False
) -> Settle | Confirm | OpenNewKey | LookAgain:
    """What to do with the row after a look; a declined PaymentIntent has been canceled by then.

    Args:
        never_sent: nothing was ever sent under the row's key, so that what is absent needs no grace time.

    Raises:
        LookInconclusive: Stripe showed too much to prove that a charge is absent.
        stripe.StripeError: Stripe gave no answer.
    """
    # The time before the look: what it did not show may have appeared while it was slow.
    now = clock()
    found = gateway.look(row.request, placed_at=row.placed_at, appears_until=row.appears_until, now=now)
    if never_sent and not found:
        return OpenNewKey()
    decision = after_look(row, found, now)
    if isinstance(decision, Cancel):
        return Settle(reply_for(row.request, gateway.cancel(decision.payment_intent_id)))
    return decision
