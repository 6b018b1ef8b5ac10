"""What a review writes to the Payments table: through the payment service's store, on the row's revision.

    resolve    NEEDS_REVIEW ─► SUCCEEDED     what finalize_unclaimed writes, and the record
    reopen     NEEDS_REVIEW ─► PENDING       as the first claim left it: no lease, no outcome, in the index; the record
    record     the record alone

The record is an attribute of its own for each write, `review_7` of revision 7: who, when, why. No later write removes
it. The row's stream publishes an outcome as it does any other.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from onecharge.contract.states import PaymentState
from onecharge.payments.charges.protocol import Finalize, Payment
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.leases import Changes
from onecharge.runtime.dynamodb import shard_of

RECORD = "review_"
"""The beginning of the records' names."""
_OF_THE_OUTCOME = (
    *("lease_owner", "finalized_at", "last_emitted_at", "expires_at"),
    *("decline_code", "advice_code", "refused_at", "stripe_message", "stripe_request_id"),
)


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

    @property
    def attribute(self) -> Mapping[str, str | int]:
        """As it is stored."""
        given: dict[str, str | int | None] = {
            "resolution": self.resolution,
            "by": self.by,
            "reason": self.reason,
            "at": self.at,
            "payment_intent_id": self.payment_intent_id,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class ReviewStore(PaymentStore):
    """The Payments table for reviews. Each write is refused, and returns False, if the row has changed since."""

    def resolve(self, payment: Payment, final: Finalize, review: Review) -> bool:
        """Write the outcome that Stripe shows, on a row that needs review."""
        return self._write_review(payment, self._final_changes(final, review.at), review)

    def reopen(self, payment: Payment, review: Review, *, cancel: bool) -> bool:
        """Put a row that needs review back to PENDING, so that the protocol runs again."""
        sets = {
            "#state": ":state",
            "lease_expires_at": ":zero",
            "claimed_at": ":now",
            "unfinished_shard": ":shard",
            "unfinished_claimed_at": ":visited",
        }
        if cancel:
            sets["cancel_requested_at"] = "if_not_exists(cancel_requested_at, :now)"
        values = {
            # A message claims it soon; a cancellation has none, so that the next run of reconcile visits it first.
            "visited": 0 if cancel else review.at,
            "state": PaymentState.PENDING,
            "zero": 0,
            "now": review.at,
            "shard": shard_of(payment.request.order_id),
        }
        return self._write_review(payment, Changes(sets, values, removes=_OF_THE_OUTCOME), review)

    def record(self, payment: Payment, review: Review) -> bool:
        """Write only what was decided."""
        return self._write_if_unchanged(payment, with_record(Changes({}, {}), review, payment.revision, state=False))

    def _write_review(self, payment: Payment, changes: Changes, review: Review) -> bool:
        """Only a row that needs review: a restored one may have the same revision, and another state."""
        recorded = with_record(changes, review, payment.revision)
        return self._write_if_unchanged(payment, recorded, only_if="#state = :needs_review")


def with_record(changes: Changes, review: Review, revision: int, *, state: bool = True) -> Changes:
    """The changes of a write on this revision, with the record of the review.

    Args:
        state: whether the write has the value of `#state = :needs_review`.
    """
    values = {**changes.values, "review": review.attribute}
    if state:
        values["needs_review"] = "NEEDS_REVIEW"
    return Changes({**changes.sets, f"{RECORD}{revision + 1}": ":review"}, values, changes.removes)
