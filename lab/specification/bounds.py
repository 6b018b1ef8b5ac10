"""What is explored: bounds, rules that are left out to see that it is noticed, and timelines that charged twice."""

from lab.specification.states import ANY, Left

_TWO = Left(deliver_1=1)
_ATTEMPTS = Left(deliver_1=1, deliver_2=1)
_WORKS = ("delivery#1 claims", "holder#1 creates: created 0", "holder#1 writes the id")
_CONFIRMED = (*_WORKS, "holder#1 confirms 0: declined")
_DECLINED = (*_CONFIRMED, "holder#1 writes DECLINED")
_CRASH = "holder#1 crashes, or its answer is lost"

BEFORE_THE_MEND = (
    "delivery#1 claims",
    "holder#1 creates: 500, executed later",
    "the order is a day old",
    "delivery#1 claims",
    "a backup is taken",
    "holder#1 finds nothing open",
    "Stripe executes a create late: created 0",
    "delivery#2 claims",
    "holder#2 finds 0 open",
    "holder#2 cancels 0, found",
    "holder#2 finds nothing open",
    "holder#2 creates: created 1",
    "holder#2 writes the id",
    "a backup is restored",
    "holder#1 creates: created 2",
    "holder#1 writes the id",
)
"""An earlier protocol looked up before it created. Past 22 hours, a 500 that creates late made two workers choose
different generations, and a stale row gave the first its lease back: both are about to confirm."""

THE_SAME_NOW = (
    "delivery#1 claims",
    "holder#1 creates: 500, executed later",
    "the order is a day old",
    "delivery#1 claims",
    "a backup is taken",
    "Stripe executes a create late: created 0",
    "delivery#2 claims",
    "holder#2 creates: created 1, the clock says old",
    "holder#2 finds 0 open",
    "holder#2 cancels 0, found",
    "holder#2 finds nothing open",
    "holder#2 writes the id",
    "a backup is restored",
)
"""The same faults at the same points: from here on, every state is explored."""

SKIPPED = (
    "delivery#1 claims",
    "a backup is taken",
    "holder#1 creates: created 0",
    "holder#1 writes the id",
    "Stripe cancels 0 by itself",
    "holder#1 confirms 0: unexpected state",
    "holder#1 retrieves 0: by_stripe",
    "delivery#2 claims",
    "holder#2 retrieves 0: by_stripe",
    "holder#2 creates: 500, not executed, stored",
    "delivery#2 claims",
    "holder#2 retrieves 0: by_stripe",
    "holder#2 creates: a replay of 500",
    "delivery#2 claims",
    "holder#2 retrieves 0: by_stripe",
    "holder#2 creates: created 1",
    "holder#2 writes the id",
    "a backup is restored",
    "holder#1 creates: a replay of 500",
)
"""A row that names a canceled PaymentIntent and the generation after a stored failure: the next one is that, not one
more. Otherwise it depends on the row, which may be restored without the id, where the chain goes on."""

FAULTS = Left(deliver_1=1, error=1, backup=1, restore=1)

MUTANTS: dict[str, tuple[Left, tuple[str, ...]]] = {
    "the lookup comes before the create": (FAULTS, BEFORE_THE_MEND),
    "no lookup past 22 h": (Left(deliver_1=1, restore=1, forget=1), ()),
    "lookup only for a fresh create": (Left(deliver_1=1, restore=1, forget=1), ()),
    "the clock is read before the create": (Left(deliver_1=1, backup=1, restore=1, forget=1), ()),
    "adopting what was found": (Left(deliver_1=1, backup=1, restore=1, forget=1), ()),
    "what is found stays open": (Left(deliver_1=1, restore=1, forget=1), ()),
    "what is found canceled is no trace": (Left(deliver_1=1, cancel=1, restore=1, forget=1), ()),
    "a generation is skipped": (Left(deliver_1=4, error=1, strike=1, backup=1, restore=1), SKIPPED),
    "by hand taken for abandoned": (Left(deliver_1=1, stop=1), ()),
    "what is found canceled by hand is passed over": (Left(deliver_1=1, stop=1, restore=1, forget=1), ()),
    "the next one after Stripe gave up": (Left(deliver_1=1, deliver_2=1, strike=1), _DECLINED),
    "a generation beside processing": (_TWO, ()),
    "the next one without canceling": (Left(deliver_1=1, error=1), _WORKS),
    "abandoned taken for canceled": (Left(error=1), _WORKS),
    "a second confirm key": (_TWO, ()),
    "a replayed refusal is sent again": (Left(deliver_1=1, refusal=1), ()),
    "no retrieve after a replayed confirm": (Left(at_once=1, restore=1), ()),
    "a stored 500 taken for an answer": (Left(deliver_1=1, deliver_2=1, error=1), _DECLINED),
    "a decline known by its card": (_ATTEMPTS, ()),
    "a request to cancel is overlooked": (Left(cancel=1), ()),
    "CANCELED without Stripe's word": (Left(deliver_1=1, cancel=1), ()),
    "id written without the lease": (Left(deliver_1=1, deliver_2=1, crash=1), (*_WORKS, _CRASH)),
    "finalize without the lease": (Left(deliver_1=1, strike=1), _WORKS),
    "finalize without the attempt, finalize without the lease": (_ATTEMPTS, ()),
    "reconciled without the revision": (Left(deliver_1=1, deliver_2=1, reconcile=1), ()),
    "paid without Stripe's word": (Left(deliver_1=1, review=1, person=1), ()),
    "canceled by a person's word": (Left(deliver_1=1, review=1, person=1), ()),
}
"""Each rule with the bounds in which leaving it out is caught, and the first steps there if there are too many."""

SCHEDULES = (
    (Left(deliver_1=2, error=1, backup=1, restore=1, forget=1), THE_SAME_NOW),
    (Left(deliver_1=4, error=1, strike=1, backup=1, restore=1, forget=1), SKIPPED),
)
"""Bounds in which every state that can follow them is explored."""

REDUNDANT: dict[str, tuple[Left, ...]] = {
    # A lease's owner is drawn anew by each claim, so it says which attempt and which PaymentIntent as well.
    "finalize without the attempt": (_ATTEMPTS, Left(cancel=1)),
    "id written whatever it replaces": (_ATTEMPTS, Left(cancel=1)),
    # Taken for a new one, it is confirmed: its key replays, or Stripe refuses, and then it is retrieved.
    "no retrieve after a replayed create": (_ATTEMPTS, Left(cancel=1)),
    # The message of the cancellation comes back until the order is closed; this saves it a round.
    "left open though to be canceled": (Left(cancel=1), Left(deliver_1=1, cancel=1)),
    # It saves the confirm of an attempt that is declined already, once its key is forgotten.
    "a decline known by its answer alone": (_ATTEMPTS, Left(cancel=1)),
    # Put back, a row is an older version of itself: the protocol arrives where it was. It saves workers their lease.
    "resolved on any revision": (Left(deliver_1=1, review=1, person=2),),
}
"""Rules that the promise does not need, and bounds in which each is left out and every state is explored. By hand, the
first, third and fifth were with one backup restored besides, or one 500, or the reconciler."""

COMPLETE = (
    Left(deliver_1=1, crash=ANY),
    Left(deliver_1=1, stop=1, crash=1),
    Left(deliver_1=1, stop=1, reconcile=1),
    Left(deliver_1=1, cancel=1, stop=1),
    Left(at_once=1, stop=1, restore=1, forget=1),
    Left(at_once=1, deliver_1=1, stop=2, person=2),
    Left(deliver_1=2, crash=1),
    Left(deliver_1=1, forget=1),
    Left(deliver_1=1, strike=1),
    Left(deliver_1=1, error=1),
    Left(deliver_1=1, refusal=2),
    Left(deliver_1=1, deliver_2=1, refusal=1),
    Left(deliver_1=1, cancel=1),
    Left(cancel=1, reconcile=1),
    Left(deliver_1=1, cancel=1, refuse=1, crash=ANY),
    Left(deliver_1=1, deliver_2=1, crash=1),
    Left(deliver_1=1, reconcile=1),
    Left(deliver_1=1, restore=1),
    Left(backup=1, restore=1, forget=1),
    Left(deliver_1=1, review=1, person=2),
    Left(deliver_1=1, reconcile=1, review=1, person=1),
    Left(cancel=1, review=1, person=1),
    Left(at_once=1, backup=1, restore=1, review=1, person=1),
)
"""Every state within these is explored by each run of the tests."""

WALKS = (
    (Left(deliver_1=3, deliver_2=2, reconcile=2, crash=3, error=1, strike=1, intents=5), 500),
    (Left(deliver_1=3, deliver_2=1, cancel=1, reconcile=2, crash=3, error=1, intents=5), 500),
    (Left(deliver_1=4, error=2, backup=1, restore=1, forget=2, crash=2, intents=6), 500),
    (Left(deliver_1=3, cancel=1, reconcile=1, backup=1, restore=1, forget=1, review=2, person=2, intents=5), 500),
    (Left(deliver_1=3, reconcile=2, stop=2, person=2, backup=1, restore=1, forget=2, crash=2, intents=6), 500),
    (Left(3, 6, deliver_1=3, cancel=1, reconcile=1, backup=1, restore=1, forget=2, error=1, strike=1), 500),
)
"""Random ways through larger bounds: how many of each."""
