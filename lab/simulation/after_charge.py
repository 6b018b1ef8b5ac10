"""What happens to a charge afterwards: refunds by hand, disputes, suspicions, and charges by another integration.

The events of these come with those of the charge, in any order, repeated or late, while rows are lost at any step. At
the end the row has Stripe's sum of refunds, Stripe's disputes and suspicion; a review of two charges is left by no
event, and a stranger's charge in the order's transfer group is nobody's.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from lab.simulation.choices import Choices, SeededChoices
from lab.simulation.service import PAID, REVIEW, RowKey, RowView, row_key_of_intent
from lab.simulation.world import Scenario, Violation, World
from onecharge.contract.events import OrderPlacedEvent
from onecharge.payments.after_charge import EARLY_FRAUD_WARNING
from onecharge.payments.after_charge import REVIEW as REVIEW_OPEN
from onecharge.payments.charge_rules import GROUPED_TERMS, SEVERAL_SUCCEEDED
from onecharge.runtime.dynamodb import from_item
from stripe_standin import radar
from stripe_standin.charges import Charge
from stripe_standin.payment_intents import PaymentIntent, emit_change
from tests.shop.dynamodb import Item

_ACTS_MAX = 6
_STATUSES = ("warning_needs_response", "needs_response", "under_review", "lost", "appeal_needs_response", "won")


class AfterChargeWorld(World):
    """A schedule in which charges are refunded, disputed, and made twice."""

    def __post_init__(self) -> None:
        self.acts = 0
        self.charged_twice: set[RowKey] = set()
        self.charges_twice = False
        self.has_strangers = False
        super().__post_init__()

    def _let_others_act(self) -> None:
        super()._let_others_act()
        charges = [each for each in self.stripe.charges if self.stripe.is_ours(each.id)]
        if not charges or self.acts >= _ACTS_MAX or not self.choices.happens(0.1):
            return
        self.acts += 1
        charge = charges[self.choices.pick(len(charges))]
        if self.charges_twice and row_key_of_intent(charge) not in self.charged_twice:
            self._charge_again(charge)
        elif self.has_strangers and self.acts == 1:
            self._group_a_stranger(charge)
        elif review := self._open_review_of(charge):
            self._note(f"{charge.id} is approved", fault="approved")
            radar.close_review(self.stripe.ours, review.id, "approved")
        elif self.choices.pick(2):
            self._refund(charge)
        else:
            status = _STATUSES[self.choices.pick(len(_STATUSES))]
            self._note(f"the dispute of {charge.id} is {status}", fault="disputed")
            self.stripe.dispute_is(charge.id, status, number=self.choices.pick(2))

    def _refund(self, charge: PaymentIntent) -> None:
        self._note(f"100 of {charge.id} are refunded by hand", fault="refunded by hand")
        self.stripe.refund_in_dashboard(charge.id, 100)

    def _charge_again(self, charge: PaymentIntent) -> None:
        """Another integration copies the metadata. Our ledger, which the invariants count, has one charge."""
        again = replace(charge, id=f"{charge.id}_again", created=self.time)
        self._note(f"{again.id} succeeds as well", fault="charged twice")
        self.charged_twice.add(row_key_of_intent(charge))
        self.stripe.ours.all(PaymentIntent)[again.id] = again
        emit_change(self.stripe.ours, again, "succeeded")

    def _group_a_stranger(self, charge: PaymentIntent) -> None:
        """Another integration groups a charge of its own by our order's id."""
        ours = self.stripe.ours
        other = replace(charge, id=f"{charge.id}_other", created=self.time, metadata={"order_id": "theirs"})
        charged = ours.all(Charge)[charge.latest_charge or ""]
        ours.all(PaymentIntent)[other.id] = other
        ours.all(Charge)[f"{charged.id}_other"] = replace(charged, id=f"{charged.id}_other", payment_intent=other.id)
        self._note(f"{other.id} is in its transfer group", fault="a stranger in the transfer group")
        emit_change(ours, other, "succeeded")

    def _open_review_of(self, charge: PaymentIntent) -> radar.Review | None:
        reviews = self.stripe.ours.all(radar.Review)
        return next((each for each in reviews.values() if each.intent is charge and not each.closed_reason), None)

    def _may_need_review(self, key: RowKey) -> bool:
        return key in self.charged_twice or super()._may_need_review(key)

    def _wrote_row(self, old: Item | None, new: Item | None) -> None:
        super()._wrote_row(old, new)
        if old is None or new is None:
            return
        is_of_several = from_item(old).get("decline_code") == SEVERAL_SUCCEEDED
        if RowView.of(old).state is REVIEW and is_of_several and RowView.of(new).state is PAID:
            self.broken = "an event has ended a review of two charges"

    def _check_the_end(self) -> None:
        if self.charged_twice:
            # They say that another integration has charged.
            for metric in ("Discrepancy.PAID_TWICE", "UnattendedNeedsReview"):
                self.reported.pop(metric, None)
        super()._check_the_end()

    def _check_the_end_of(self, key: RowKey, last: OrderPlacedEvent) -> None:
        if key in self.charged_twice:
            self.met(f"charged twice: {self.states.get(key)}")
        else:
            super()._check_the_end_of(key, last)
        if self.states.get(key) is PAID:
            self._check_what_followed(from_item(self.rows[key]))

    def _check_what_followed(self, row: Mapping[str, object]) -> None:
        named = str(row["payment_intent_id"])
        refunded = self.stripe.refunded(named)
        if row.get("amount_refunded_minor", 0) != refunded:
            raise Violation(f"the row says other than {refunded} refunded of {named}", self.timeline)
        disputes = {each.id: each.status for each in self.stripe.disputes if each.charge.payment_intent == named}
        if row.get("disputes", {}) != disputes:
            raise Violation(f"the row says other than {disputes} of {named}", self.timeline)
        suspicion = self._suspicion_of(self.stripe.ours.all(PaymentIntent)[named])
        if row.get("fraud_suspicion") != suspicion:
            raise Violation(f"the row says other than {suspicion} of {named}", self.timeline)

    def _suspicion_of(self, charge: PaymentIntent) -> str | None:
        if any(each.intent is charge for each in self.stripe.ours.all(radar.EarlyFraudWarning).values()):
            return EARLY_FRAUD_WARNING
        return REVIEW_OPEN if self._open_review_of(charge) else None


# ---------------------------------------------------------------- scenarios

_PLAIN = Scenario(
    copies=1,
    fault_probability=0.03,
    crash_probability=0.02,
    redeliveries=2,
    waits_seconds=(60, 3600, 86_400),
    reconciles=True,
    webhooks=True,
)

SCENARIOS: Mapping[str, Scenario] = {
    "refunds and disputes": _PLAIN,
    "refunds and disputes, rows lost between deliveries": replace(_PLAIN, lose_rows=True),
    "refunds and disputes, rows lost at any step": replace(_PLAIN, row_loss_probability=0.01),
    "charged twice, rows lost between deliveries": replace(_PLAIN, lose_rows=True, search_lag_seconds=600),
    "suspected of fraud, rows lost between deliveries": replace(
        _PLAIN, orders=(("pm_card_riskLevelElevated",), ("pm_card_createIssuerFraudRecord",)), lose_rows=True
    ),
    "strangers in the transfer group, rows lost between deliveries": replace(_PLAIN, redeliveries=3, lose_rows=True),
}
"""Each of them once."""


def after_charge_world(
    number: int, mutate: Callable[[World], None] = lambda world: None, *, of: str | None = None
) -> AfterChargeWorld:
    """The schedule of this number, of one scenario or of all in turn."""
    names = [of] if of else list(SCENARIOS)
    name = names[number % len(names)]
    choices: Choices = SeededChoices(number)
    world = AfterChargeWorld(SCENARIOS[name], choices, mutate)
    world.charges_twice = name.startswith("charged twice")
    world.has_strangers = name.startswith("strangers")
    if world.has_strangers:
        world.service.use_terms(GROUPED_TERMS)
    return world
