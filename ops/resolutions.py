"""What a person may decide about a payment or a refund, by its row and what Stripe shows now. Pure: no clock, no I/O.

ops/review.py says what each resolution means. Nothing here writes an outcome that Stripe has not decided: `paid`,
`refund-made` and `refund-failed` write what Stripe shows. `retry` and `cancel` put the row back to PENDING, as before
its review: an older version of itself, which the charge protocol tolerates as it does a restored one (docs/protocol.md,
"Assumptions"). Everything else of the order that is open at Stripe is canceled before, so that only the row's own
PaymentIntent can be charged from then on.

FAILED frees a refund's amount, so that it can be refunded again: nothing may create the refund any more. No worker
claims a refund that needs review, and Stripe executes what it has received within a day or never
(payments/refund_rules.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from onecharge.contract.events import PAYMENT_EVENT_TYPES
from onecharge.contract.money import as_money
from onecharge.contract.refunds import RefundState
from onecharge.contract.states import PaymentState
from onecharge.orders.schema import StoredOrder
from onecharge.orders.transitions import OUTCOMES
from onecharge.payments.after_charge import LOST, AfterCharge, is_open
from onecharge.payments.charge_rules import Finalize, Payment, StripeIntent
from onecharge.payments.refund_rules import (
    SPENT_KEY_SECONDS,
    FinalizeRefund,
    Refund,
    StripeRefund,
)

STUCK_IF_GONE = (PaymentState.PENDING, PaymentState.REQUIRES_ACTION, PaymentState.NEEDS_REVIEW)
"""The states of a row that no message and no reconciler ends, if Stripe has no such PaymentIntent as it names."""


class Resolution(StrEnum):
    """What a person decides about a payment."""

    PAID = "paid"
    RETRY = "retry"
    CANCEL = "cancel"
    REFUND_SECOND = "refund-second"


class RefundResolution(StrEnum):
    """What a person decides about a refund."""

    MADE = "refund-made"
    FAILED = "refund-failed"


@dataclass(frozen=True)
class Seen:
    """The row, and then Stripe: whatever Stripe shows is newer than the row's revision."""

    payment: Payment | None
    intents: Sequence[StripeIntent] = ()
    """Every PaymentIntent of the order."""
    after_charge: Mapping[str, AfterCharge] = field(default_factory=dict)
    """The refunds and disputes of each that succeeded."""
    is_gone: bool = False
    """Stripe has no such PaymentIntent as the row names: the API key is, or was, of another account or mode."""

    def refunded_minor(self, payment_intent_id: str) -> int:
        """Without refunds that failed."""
        after = self.after_charge.get(payment_intent_id)
        return after.amount_refunded_minor if after else 0


@dataclass(frozen=True)
class Refused:
    """It cannot be decided like this now; says why, and what can be done."""

    why: str


@dataclass(frozen=True)
class CancelFirst:
    """PaymentIntents of the order that are open, and not the row's: cancel them as abandoned, then check again."""

    payment_intent_ids: tuple[str, ...]


@dataclass(frozen=True)
class Write:
    """Write this final state on the row's revision."""

    final: Finalize


@dataclass(frozen=True)
class Reopen:
    """Put the row back to PENDING on its revision."""

    cancel: bool
    """With a request to cancel."""
    accepted_cancellations: tuple[str, ...] = ()
    """PaymentIntents that a person canceled at Stripe: `retry` charges the order all the same."""
    leaves_behind: bool = False
    """The row forgets its PaymentIntent, which Stripe does not have: an older version of itself, once more."""


@dataclass(frozen=True)
class Close:
    """End the order alone: what succeeded was of other money, and is refunded in full. The row keeps its review."""


@dataclass(frozen=True)
class RefundSecond:
    """Refund this PaymentIntent in full, once."""

    intent: StripeIntent


type Step = Write | Reopen | Close | RefundSecond
type Decision = Refused | CancelFirst | Step


def decide_resolution(resolution: Resolution, seen: Seen, *, chosen: str | None = None) -> Decision:
    """What follows from the decision of a person.

    Args:
        chosen: the PaymentIntent that the person names; None if there is only one that it can be. If Stripe does not
            have it, the person says that it was made with a wrong key, and has charged nothing there.
    """
    if seen.payment is None:
        return Refused(
            "there is no row: reconcile writes it again from a PaymentIntent that succeeded; else retry or cancel"
        )
    named = seen.payment.payment_intent_id
    is_left = seen.is_gone and chosen == named and resolution in (Resolution.RETRY, Resolution.CANCEL)
    if chosen is not None and not is_left and chosen not in {each.payment_intent_id for each in seen.intents}:
        return Refused(f"{chosen} is not a PaymentIntent of this order, by its metadata")
    if resolution is Resolution.REFUND_SECOND:
        return _refund_second(seen, seen.payment, chosen)
    if seen.payment.state not in (STUCK_IF_GONE if is_left else (PaymentState.NEEDS_REVIEW,)):
        return Refused(f"the payment is {seen.payment.state}: only what is NEEDS_REVIEW is resolved")
    if waiting := [each.payment_intent_id for each in seen.intents if each.status == "processing"]:
        return Refused(f"Stripe is processing {', '.join(waiting)}: wait until it has decided")
    if named is not None and _own(seen, seen.payment) is None and not is_left:
        # It may have succeeded, beside another one.
        return Refused(f"Stripe has no {named}, which the row names: is the key another account's, or was it?")
    if resolution is Resolution.PAID:
        return _paid(seen, seen.payment, chosen)
    return _again(resolution, seen, seen.payment)


def _paid(seen: Seen, payment: Payment, chosen: str | None) -> Decision:
    succeeded = _succeeded(seen)
    if chosen is None and len(succeeded) != 1:
        many = "several PaymentIntents" if succeeded else "no PaymentIntent"
        return Refused(f"{many} of the order succeeded: name one with --payment-intent")
    intent = next((each for each in succeeded if chosen in (None, each.payment_intent_id)), None)
    if intent is None:
        return Refused(f"{chosen} has not succeeded")
    if intent.money_differs_from(payment.request):
        return Refused(
            f"{intent.payment_intent_id} is {_money(intent)}, frozen are "
            f"{as_money(payment.request.amount_minor, payment.request.currency)}: "
            "refund it at Stripe in full, then resolve it as cancel"
        )
    others, is_returned = [each for each in succeeded if each is not intent], _is_returned(seen, intent)
    if kept := [each.payment_intent_id for each in others if not _is_returned(seen, each)]:
        if is_returned:
            return Refused(f"{intent.payment_intent_id} is refunded in full, or lost in a dispute: it pays nothing")
        return Refused(f"{', '.join(kept)} succeeded, too: refund it first, so that the customer has paid once")
    after = seen.after_charge.get(intent.payment_intent_id)
    return _cancel_others(seen, keep=intent.payment_intent_id) or Write(
        Finalize(PaymentState.SUCCEEDED, intent.payment_intent_id, intent.generation, after_charge=after)
    )


def _again(resolution: Resolution, seen: Seen, payment: Payment) -> Decision:
    succeeded = _succeeded(seen)
    of_other_money = [each for each in succeeded if each.money_differs_from(payment.request)]
    is_ended = succeeded == of_other_money and all(_is_returned(seen, each) for each in succeeded)
    if succeeded and resolution is Resolution.CANCEL and is_ended:
        return _cancel_others(seen, keep=None) or Close()
    if succeeded:
        ids = ", ".join(each.payment_intent_id for each in succeeded)
        return Refused(f"{ids} succeeded: the order is charged; resolve it as paid, or refund it")
    odd = [each for each in seen.intents if each.status != "canceled" and not each.is_open]
    if odd:
        what = ", ".join(f"{each.payment_intent_id} is {each.status}" for each in odd)
        return Refused(f"{what}: cancel it at Stripe first")
    is_canceled = any(each.is_canceled_by_customer for each in seen.intents)
    if resolution is Resolution.RETRY and (is_canceled or payment.cancel_requested_at is not None):
        return Refused("its cancellation was requested: resolve it as cancel")
    own = _own(seen, payment)
    if own is not None and own.is_open and own.money_differs_from(payment.request):
        return Refused(f"{own.payment_intent_id} is {_money(own)}, which was not frozen: cancel it at Stripe first")
    cancel = resolution is Resolution.CANCEL
    # Each by its id: one that is canceled by hand after this was read needs a decision of its own.
    accepted = () if cancel else tuple(each.payment_intent_id for each in seen.intents if each.is_canceled_by_hand)
    leaves = seen.is_gone and own is None
    return _cancel_others(seen, keep=payment.payment_intent_id) or Reopen(cancel, accepted, leaves)


def _cancel_others(seen: Seen, *, keep: str | None) -> CancelFirst | None:
    still_open = tuple(each.payment_intent_id for each in seen.intents if each.is_open)
    others = tuple(each for each in still_open if each != keep)
    return CancelFirst(others) if others else None


def _refund_second(seen: Seen, payment: Payment, chosen: str | None) -> Decision:
    if payment.state not in (PaymentState.SUCCEEDED, PaymentState.NEEDS_REVIEW):
        return Refused(f"the payment is {payment.state}: only what is paid, or in review, has a second charge")
    succeeded = _succeeded(seen)
    own = next((each for each in succeeded if each.payment_intent_id == payment.payment_intent_id), None)
    if own is None or own.money_differs_from(payment.request):
        return Refused(f"{payment.payment_intent_id}, which the row names, does not pay the order: nothing is second")
    if _is_returned(seen, own):
        return Refused(
            f"{own.payment_intent_id}, which the row names, is refunded already, or lost in a dispute: "
            "the other one pays the order"
        )
    if (after := seen.after_charge.get(own.payment_intent_id)) and is_open(after.disputes):
        return Refused(
            f"{own.payment_intent_id}, which the row names, is disputed: if it is lost, the other one pays the order; "
            "wait, accept the dispute, or refund the other one at Stripe"
        )
    others = [each for each in succeeded if each is not own and chosen in (None, each.payment_intent_id)]
    left = [each for each in others if not _is_returned(seen, each)]
    if not left:
        return Refused("no other PaymentIntent of the order has succeeded and is not refunded")
    if len(left) > 1:
        ids = ", ".join(each.payment_intent_id for each in left)
        return Refused(f"{ids} succeeded, too: name one with --payment-intent")
    if seen.refunded_minor(left[0].payment_intent_id):
        return Refused(f"{left[0].payment_intent_id} is refunded in part: refund the rest at Stripe")
    return RefundSecond(left[0])


def has_outcome_for(order: StoredOrder, row: Payment | None) -> bool:
    """Whether the row's outcome moves the order. Else only a message goes on: the row is lost, unfinished, or older."""
    event_type = PAYMENT_EVENT_TYPES.get(row.state) if row else None
    return bool(row and event_type and OUTCOMES[event_type].applies(order, row.attempt))


def _own(seen: Seen, payment: Payment) -> StripeIntent | None:
    return next((each for each in seen.intents if each.payment_intent_id == payment.payment_intent_id), None)


def _succeeded(seen: Seen) -> list[StripeIntent]:
    return [each for each in seen.intents if each.status == "succeeded"]


def _is_returned(seen: Seen, intent: StripeIntent) -> bool:
    """Whether the customer has the money back: by refunds, or by a dispute, after which Stripe refunds nothing."""
    after = seen.after_charge.get(intent.payment_intent_id)
    if after and LOST in after.disputes.values():
        return True
    return seen.refunded_minor(intent.payment_intent_id) >= intent.amount_minor


def _money(intent: StripeIntent) -> str:
    return as_money(intent.amount_minor, intent.currency)


# ---------------------------------------------------------------- refunds


def decide_refund(
    resolution: RefundResolution, refund: Refund | None, found: Sequence[StripeRefund], *, now: int
) -> FinalizeRefund | Refused:
    """What follows. `found` is complete: every refund of this id at Stripe."""
    if refund is None or refund.state is not RefundState.NEEDS_REVIEW:
        return Refused("only a refund that is NEEDS_REVIEW is resolved")
    shown = ", ".join(f"{each.stripe_refund_id} is {each.status}" for each in found) or "no refund of this id"
    returned = [each for each in found if each.status in ("failed", "canceled")]
    if resolution is RefundResolution.MADE:
        made = [each for each in found if each.status in ("succeeded", "pending")]
        if sum(each.amount_minor for each in made) < refund.request.amount_minor:
            return Refused(f"Stripe shows {shown}: less is made than was asked for; make the rest there, of this id")
        return FinalizeRefund(RefundState.SUCCEEDED, made[0].stripe_refund_id)
    if len(returned) != len(found):
        return Refused(f"Stripe shows {shown}: a refund that may give money back is not failed")
    if not found and now - (refund.finalized_at or now) < SPENT_KEY_SECONDS:
        return Refused("Stripe shows none, and may still execute what was sent: wait a day from the last attempt")
    code = (returned[0].failure_reason or returned[0].status) if returned else "never made"
    return FinalizeRefund(RefundState.FAILED, returned[0].stripe_refund_id if returned else None, code)
