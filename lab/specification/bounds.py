"""Bounds in which every state is visited, and rules that are left out to see that it is noticed."""

from lab.specification.world import Left

GATE = (
    Left(error=1),
    Left(loss=1),
    Left(restore=1),
    Left(page=True, processing=True),
    Left(person=1, long_memory=True),
    Left((1, 0)),
    Left((1, 2), page=True),
    Left((1, 1), ticks=3),
)
"""Explored by each run of the tests."""

NIGHTLY = (
    Left(error=2),
    Left((1, 1)),
    Left(error=1, loss=1, long_memory=True),
    Left(error=1, restore=1),
    Left(loss=1, restore=1),
    Left((1, 0), loss=1),
    Left((1, 0), error=1),
    Left((1, 0), person=1, page=True, processing=True),
    Left((1, 2), error=1, page=True),
    Left(loss=1, person=1, page=True),
)
"""Explored by `make specification`, too."""

MUTANTS = {
    "created at any age": Left(loss=1),
    "the id is stored without the lease": Left((1, 0), restore=1),
    "canceled without Stripe": Left((1, 0)),
    "a request to cancel is overlooked": Left((1, 0)),
    "finalized without the lease": Left(restore=1),
    "released without a look": Left(loss=1),
    "a look that lags": Left(loss=1),
    "a cancellation found is passed over": Left(loss=1),
    "what is open is passed over": Left(loss=1),
    "a restored release counts": Left(loss=1, restore=1),
}
"""Each rule, and the bounds in which leaving it out breaks the promise."""

NOT_NEEDED = {
    # Both ids are of this order, and a PaymentIntent that no row names is not confirmed.
    "the id is stored over another": Left(error=1),
    # It is confirmed: its key replays, or Stripe refuses, and then it is retrieved.
    "no retrieve after a replay": Left(error=1),
    # A PaymentIntent succeeds once, under however many keys. One key saves the customer a second try.
    "a new key for each confirm": Left(error=1),
    # A window is opened only when Stripe shows nothing. The name is a second fence.
    "one name for all windows": Left(loss=1, long_memory=True),
    # The cancellation's message comes back until the order has an end.
    "declined though to be canceled": Left((1, 0)),
}
"""Rules that the promise does not need, and bounds in which each is left out."""
