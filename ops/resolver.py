"""Resolves a payment as a person decides: reads the row, then Stripe, and writes on the revision that was read.

    look_up ─► decide_resolution ─┬─► Refused
      ▲                           ├─► CancelFirst ─► cancel at Stripe ─┐
      └───────────────────────────┼────────────────────────────────────┘
                                  └─► Write, Reopen ─► on the row's revision ─► Resolved; refused if the row has changed

Whatever a person saw before is not used: everything is read again at the moment of writing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.protocol import CancelReason, FoundIntent, Payment
from onecharge.payments.stripe_responses import ResponseKind
from ops.resolutions import (
    CancelFirst,
    Decision,
    Refund,
    Refused,
    Reopen,
    Resolution,
    Seen,
    Step,
    Write,
    decide_resolution,
)
from ops.review_store import Review, ReviewStore

_ROUNDS_MAX = 3


@dataclass(frozen=True)
class Resolved:
    """It is written."""

    decision: Decision
    payment: Payment
    """As it was read before."""


def refund_at_stripe(_: Payment, __: FoundIntent) -> str | None:
    """Without the refunds part."""
    return "there is no refunds part: refund it at Stripe"


@dataclass(frozen=True)
class Resolver:
    """Resolves through the payment service's store and gateway.

    Methods raise LookupInconclusive and stripe.StripeError: Stripe does not show everything, so nothing is decided;
    and botocore's errors.
    """

    store: ReviewStore
    gateway: StripeGateway
    clock: Callable[[], float]
    refund: Callable[[Payment, FoundIntent], str | None] = refund_at_stripe
    """Refunds a PaymentIntent in full, once; returns why it is not done yet, or None."""

    def look_up(self, order_id: str) -> Seen:
        """The row, and then everything of the order at Stripe."""
        payment = self.store.read(order_id)
        if payment is None:
            return Seen(None)
        found = self.gateway.find_payment_intents(payment.request, now=int(self.clock()))
        intents = {each.payment_intent_id: each for each in found}
        own = payment.payment_intent_id
        if own is not None and own not in intents:
            # Search lags, and the list begins late: the row's own is there all the same, or this is another account.
            response = self.gateway.retrieve(own)
            if response.intent is not None and response.failure is None:
                intents[own] = response.intent
        succeeded = [each.payment_intent_id for each in intents.values() if each.status == "succeeded"]
        return Seen(payment, list(intents.values()), {each: self.gateway.amount_refunded(each) for each in succeeded})

    def resolve(
        self, order_id: str, resolution: Resolution, review: Review, *, chosen: str | None = None
    ) -> Resolved | Refused:
        """Decide by what is there now, and write it."""
        for _ in range(_ROUNDS_MAX):
            seen = self.look_up(order_id)
            decision = decide_resolution(resolution, seen, chosen=chosen)
            if isinstance(decision, Refused) or seen.payment is None:
                return decision if isinstance(decision, Refused) else Refused("there is no row")
            if not isinstance(decision, CancelFirst):
                return self._apply(seen.payment, decision, review)
            for each in decision.payment_intent_ids:
                failure = self.gateway.cancel(each, CancelReason.ABANDONED).failure
                if failure is not None and failure.kind is not ResponseKind.UNEXPECTED_STATE:
                    return Refused(f"{each} could not be canceled: {failure.kind}")
        return Refused("PaymentIntents of the order stay open: look at them at Stripe")

    def _apply(self, payment: Payment, decision: Step, review: Review) -> Resolved | Refused:
        match decision:
            case Write(final):
                is_written = self.store.resolve(payment, final, review)
            case Reopen(cancel):
                is_written = self.store.reopen(payment, review, cancel=cancel)
            case Refund(intent):
                # The record first: it is refused if the row has changed since, and with it who pays the order.
                is_written = self.store.record(payment, review)
                if is_written and (why := self.refund(payment, intent)):
                    return Refused(f"recorded, and not refunded yet: {why}; run this again")
            case _:
                assert_never(decision)
        if not is_written:
            return Refused("the row has changed since it was read: check again")
        return Resolved(decision, payment)
