"""A person resolves payments that need review, at any moment and with whatever they believe: ops/resolver.py.

Stripe refuses requests as invalid for a while, as after a faulty deploy, until payments need review. Then somebody who
may have looked an hour ago, or at another order, decides `paid`, `retry` or `cancel` about any row, in any state, with
any PaymentIntent; two such people at once, who may be gone halfway; beside deliveries, the reconciler, webhooks, the
customer's page, lost and stale rows. The invariants are those of every schedule (world.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

from lab.simulation.choices import Choices, SeededChoices
from lab.simulation.scenarios import ATTACKS
from lab.simulation.service import IN_WORK, MAY_BECOME, REVIEW, RowKey, RowView, State
from lab.simulation.service import RECONCILE_BOUNDS as PERSON_BOUNDS
from lab.simulation.world import Scenario, Violation, World
from onecharge.runtime.dynamodb import from_item
from ops.resolutions import Reopen, Resolution
from ops.resolver import Resolved, Resolver, Review, ReviewStore
from stripe_standin.payment_intents import PaymentIntent
from tests.shop.builders import PAYMENTS
from tests.shop.dynamodb import Item

_HOUR = 3600
_REVIEWS_MAX = 6
_ROUNDS_MAX = 6
_GOOD, _DECLINED, _3DS = "pm_card_visa", "pm_card_visa_chargeDeclined", "pm_card_threeDSecure2Required"
_RESOLUTIONS = (Resolution.PAID, Resolution.RETRY, Resolution.CANCEL)


class ReviewWorld(World):
    """A schedule in which people resolve what needs review."""

    MAY_BECOME: ClassVar[Mapping[State, set[State]]] = {**MAY_BECOME, REVIEW: {*MAY_BECOME[REVIEW], IN_WORK}}

    def __post_init__(self) -> None:
        self.reviews = 0
        self.was_refused = False
        self.to_be_sent: set[RowKey] = set()
        """Reopened for a retry: the order's stream is still to publish the attempt, or a person to run it again."""
        self.resolver: Callable[[Resolver], Resolver] = lambda resolver: resolver
        """Mutations replace it."""
        super().__post_init__()

    def _may_need_review(self, key: RowKey) -> bool:
        return self.was_refused or super()._may_need_review(key)

    def _let_others_act(self) -> None:
        super()._let_others_act()
        if not self.was_refused and self.choices.happens(0.2):
            self.was_refused = True
            self.stripe.refuses_until = self.time + 2 * _HOUR
            self.stripe.keys_store_refusals = self.choices.happens(0.5)
            self._note("Stripe refuses our requests for two hours", fault="requests refused")
        if self.rows and self.reviews < _REVIEWS_MAX and self.choices.happens(0.15 if self._in_review() else 0.01):
            self.reviews += 1
            # Mostly about what needs it; but a person may be mistaken.
            rows = self._in_review() if self._in_review() and self.choices.happens(0.8) else sorted(self.rows)
            key = rows[self.choices.pick(len(rows))]
            self.ask_a_person(key, _RESOLUTIONS[self.choices.pick(len(_RESOLUTIONS))])

    def _in_review(self) -> list[RowKey]:
        return sorted(key for key in self.rows if self.states.get(key) is REVIEW)

    def ask_a_person(self, key: RowKey, resolution: Resolution) -> None:
        """They have an opinion, and it may be old."""
        [order_id] = key
        names = [None, *(intent.id for intent in self.stripe.intents)]
        chosen = names[self.choices.pick(len(names))]
        review = Review(resolution, by="a person", reason="they say so", at=self.clock())

        def resolve() -> None:
            store = ReviewStore(self.service.store.client, PAYMENTS)
            resolver = self.resolver(Resolver(store, self.service.gateway, self.clock))
            try:
                outcome = resolver.resolve(order_id, resolution, review, chosen=chosen)
            except Exception as error:
                self.met(f"review: {type(error).__name__}")
                return
            is_resolved = isinstance(outcome, Resolved)
            self.met(f"review: {resolution} {'resolved' if is_resolved else 'refused'}")
            if isinstance(outcome, Resolved) and isinstance(outcome.decision, Reopen):
                self.pause("the order's move")
                self._publish(key)

        self.made += 1
        self._note(f"a person says {resolution} of {order_id[-4:]}, {chosen}")
        self._start(f"person{self.made}", resolve, PERSON_BOUNDS)

    def _publish(self, key: RowKey) -> None:
        """The order became PENDING again: its stream publishes the current attempt."""
        self.to_be_sent.discard(key)
        self.send([event for event in self.orders if (event.data.order_id,) == key][-1])

    def _wrote_row(self, old: Item | None, new: Item | None) -> None:
        super()._wrote_row(old, new)
        if old is None or new is None:
            return
        was, row = RowView.of(old), RowView.of(new)
        if was.state is REVIEW and row.state is IN_WORK:
            self.to_be_sent.add(row.key)
            accepted = from_item({"ids": new.get("accepted_cancellations", {"L": []})})["ids"]
            if row.key in self.stopped and (self.stopped[row.key] in accepted or row.is_to_be_canceled):
                del self.stopped[row.key]
                self.met("review: a cancellation in the Dashboard is accepted")
            if row.is_to_be_canceled and not was.is_to_be_canceled:
                self.cancels += 1
                self.met("review: a cancellation is requested")

    def _check_nothing_is_lost(self) -> None:
        """Who reopens a payment and is gone before the order is moved has done half of it: they run it again."""
        self.stripe.refuses_until = 0
        for key in sorted(self.to_be_sent):
            if self.states.get(key) is IN_WORK:
                self._publish(key)
        self.run_until_idle()
        super()._check_nothing_is_lost()

    def _check_the_end(self) -> None:
        """Nothing is wrong any more: whatever still needs review, a person can end."""
        for _ in range(_ROUNDS_MAX):
            waiting = [key for key in self._in_review() if not self._is_elsewhere(key)]
            if not waiting:
                break
            for key in waiting:
                # As `review list` shows what is possible: paid if something succeeded, else what was asked for.
                row = RowView.of(self.rows[key])
                again = Resolution.CANCEL if row.is_to_be_canceled or self._is_canceled(key) else Resolution.RETRY
                self.ask_a_person_who_knows(key, Resolution.PAID if self._charges_of(key) else again)
            self.run_until_idle()
            self._ask_again_until_all_is_finished()
        if left := [key for key in self._in_review() if not self._is_elsewhere(key)]:
            raise Violation(f"{left} needs review, and nobody can end it", self.timeline)
        super()._check_the_end()

    def ask_a_person_who_knows(self, key: RowKey, resolution: Resolution) -> None:
        """Without a PaymentIntent that they name."""
        intents = self.stripe.ours.all(PaymentIntent)
        hidden = dict(intents)
        intents.clear()
        try:
            self.ask_a_person(key, resolution)
        finally:
            intents |= hidden

    def _is_canceled(self, key: RowKey) -> bool:
        return any(intent.cancellation_reason == "requested_by_customer" for intent in self._intents_of(key))


# ---------------------------------------------------------------- scenarios

_PLAIN = Scenario(copies=1, fault_probability=0.05, crash_probability=0.03, jump_probability=0.05, reconciles=True)

SCENARIOS: Mapping[str, Scenario] = {
    "reviews": _PLAIN,
    "3-D Secure, reviews": replace(_PLAIN, orders=((_3DS, _GOOD),), webhooks=True),
    "several cards, cancellations, reviews": replace(_PLAIN, orders=((_DECLINED, _GOOD),), cancels=True),
    "a person cancels in the Dashboard, reviews": replace(_PLAIN, persons_cancel=True, redeliveries=1, lose_rows=True),
    "rows lost between deliveries, reviews": replace(_PLAIN, redeliveries=2, lose_rows=True, search_lag_seconds=1800),
    "rows lost and stale, clocks differ, reviews": replace(
        ATTACKS["rows lost and stale, clocks differ by 299 s"], copies=1, reconciles=True
    ),
    "harsh Stripe, zombies, reviews": replace(ATTACKS["harsh Stripe, rows lost"], zombies=True, reconciles=True),
    "everything, reviews": ATTACKS["everything"],
}
"""Each of them once."""


def review_world(
    number: int, mutate: Callable[[World], None] = lambda world: None, *, of: str | None = None
) -> ReviewWorld:
    """The schedule of this number, of one scenario or of all in turn."""
    names = [of] if of else list(SCENARIOS)
    scenario = SCENARIOS[names[number % len(names)]]
    choices: Choices = SeededChoices(number)
    return ReviewWorld(scenario, choices, mutate)
