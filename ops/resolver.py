"""Resolves a payment as a person decides: reads the row, then Stripe, and writes on the revision that was read.

    look_up ─► decide_resolution ─┬─► Refused
      ▲                           ├─► CancelFirst ─► cancel at Stripe ─┐
      └───────────────────────────┼────────────────────────────────────┘
                                  └─► Write, Reopen ─► on the row's revision ─► Resolved; refused if the row has changed

What a person saw before is not used: everything is read again at the moment of writing.

Each write has a record of who decided what, when and why: an attribute of its own, `review_7` of revision 7, which no
later write removes. The row's stream publishes an outcome as it does any other.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import assert_never

from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.charge_rules import CancelReason, Finalize, Payment
from onecharge.payments.refund_rows import RefundStore
from onecharge.payments.refund_rules import FinalizeRefund, Refund
from onecharge.payments.rows import Changes, next_revision
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.stripe_responses import ResponseKind
from onecharge.runtime.dynamodb import shard_of
from ops.resolutions import (
    CancelFirst,
    Close,
    RefundSecond,
    Refused,
    Reopen,
    Resolution,
    Seen,
    Step,
    Write,
    decide_resolution,
)

RECORD = "review_"
"""The beginning of the records' names."""
_OF_THE_OUTCOME = (
    *("lease_owner", "finalized_at", "last_emitted_at", "expires_at"),
    *("decline_code", "advice_code", "refused_at", "stripe_message", "stripe_request_id"),
)
_ROUNDS_MAX = 3


# ---------------------------------------------------------------- what is written


@dataclass(frozen=True)
class Review:
    """Who decided what, and why."""

    resolution: str
    by: str
    """The caller's ARN."""
    reason: str
    at: int
    """Epoch seconds."""
    payment_intent_id: str | None = None

    def recorded(self, changes: Changes, revision: int) -> Changes:
        """The changes of the write that makes this revision, with the record."""
        record: Mapping[str, object] = {name: value for name, value in asdict(self).items() if value is not None}
        return changes | Changes.to({f"{RECORD}{revision}": record})


_AS_READ = "#state = :was AND lease_expires_at <= :now"
"""Only a row of this state: a restored one may have the same revision, and another state."""


@dataclass(frozen=True)
class ReviewStore(PaymentStore):
    """The Payments table for reviews. Each write is refused, and returns False, if the row has changed since."""

    def resolve(self, payment: Payment, final: Finalize, review: Review) -> bool:
        """Write the outcome that Stripe shows, on a row that needs review."""
        return self._write_review(payment, self._final_changes(final, review.at), review)

    def reopen(self, payment: Payment, review: Review, to: Reopen) -> bool:
        """Put a row that no worker has back to PENDING, as its first claim left it, so that the protocol runs again."""
        values = {
            "state": PaymentState.PENDING,
            "lease_expires_at": 0,
            "claimed_at": review.at,
            "unfinished_shard": shard_of(payment.request.order_id),
            # A message claims it soon; a cancellation has none, so that the next run of reconcile visits it first.
            "unfinished_claimed_at": 0 if to.cancel else review.at,
            "accepted_cancellations": to.accepted_cancellations or None,
        }
        changes = Changes.to(values, removes=_OF_THE_OUTCOME)
        if to.cancel:
            changes |= Changes({"cancel_requested_at": "if_not_exists(cancel_requested_at, :now)"})
        if to.leaves_behind:
            # The generation stays: if its key has made that PaymentIntent after all, the worker's create replays it.
            changes |= Changes(removes=["payment_intent_id"])
        return self._write_review(payment, changes, review)

    def record(self, payment: Payment, review: Review) -> bool:
        """Write only what was decided."""
        recorded = review.recorded(Changes(), next_revision(payment, review.at))
        return self._write_if_unchanged(payment, recorded, now=review.at)

    def _write_review(self, payment: Payment, changes: Changes, review: Review) -> bool:
        recorded = review.recorded(changes, next_revision(payment, review.at))
        as_read = Changes(values={"was": payment.state, "now": review.at})
        return self._write_if_unchanged(payment, recorded | as_read, now=review.at, condition=_AS_READ)


@dataclass(frozen=True)
class RefundReviewStore(RefundStore):
    """The Refunds table for reviews."""

    def resolve(self, refund: Refund, final: FinalizeRefund, review: Review) -> bool:
        """Write the outcome on the revision, and the record; False if the row has changed since."""
        recorded = review.recorded(self._final_changes(final, review.at), next_revision(refund, review.at))
        as_read = Changes(values={"was": refund.state, "now": review.at})
        return self._write_if_unchanged(refund, recorded | as_read, now=review.at, condition=_AS_READ)


# ---------------------------------------------------------------- read, decide, write


@dataclass(frozen=True)
class Resolved:
    """It is written."""

    decision: Step
    payment: Payment
    """As it was read before."""
    revision: int
    """The row's, since it is written."""


@dataclass(frozen=True)
class Resolver:
    """Resolves through the payment service's store and gateway.

    Methods raise LookupInconclusive and stripe.StripeError: Stripe does not show everything, so nothing is decided;
    and botocore's errors.
    """

    store: ReviewStore
    gateway: StripeGateway
    clock: Callable[[], float]

    def look_up(self, order_id: str) -> Seen:
        """The row, and then everything of the order at Stripe."""
        payment = self.store.read(order_id)
        if payment is None:
            return Seen(None)
        found = self.gateway.find_payment_intents(payment.request, now=int(self.clock()))
        intents = {each.payment_intent_id: each for each in found}
        own, is_gone = payment.payment_intent_id, False
        if own is not None and own not in intents:
            # Search lags, and the list begins late: the row's own is there all the same, or this is another account.
            response = self.gateway.retrieve(own)
            if response.found is not None and response.failure is None:
                intents[own] = response.found
            is_gone = response.failure is not None and response.failure.code == "resource_missing"
        succeeded = [each for each in intents.values() if each.status == "succeeded"]
        after = {each.payment_intent_id: self.gateway.after_charge(each) for each in succeeded}
        return Seen(payment, list(intents.values()), after, is_gone)

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
            case Reopen():
                is_written = self.store.reopen(payment, review, decision)
            case RefundSecond() | Close():
                # Refused if the row has changed, and with it what pays. Then the caller refunds, or ends the order.
                is_written = self.store.record(payment, review)
            case _:
                assert_never(decision)
        if not is_written:
            return Refused("the row has changed since it was read: check again")
        return Resolved(decision, payment, next_revision(payment, review.at))
