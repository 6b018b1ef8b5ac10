"""The refund protocol: every decision about a refund, pure. No clock, no environment, no I/O.

    claim ─► look up ─┬─► found: finalize as what it is
                      └─► none: send ─┬─► created: finalize
                                      ├─► refused: look up once more ─► finalize as FAILED
                                      └─► a refusal is replayed: look up once more ─► send under the next key

Stripe creates as many refunds of a PaymentIntent as there is money for. For a charge, the PaymentIntent prevents the
second one; for a refund, the lookup does. Each refund has its refund id in its metadata. Stripe does not say that the
list of a PaymentIntent's refunds shows one immediately: the charge's `amount_refunded` stands beside it. Four rules:

**A lookup before every POST.** A refund that was created is found, even if its response, its row or its key was lost.

**One idempotency key.** Two workers may both look up, find nothing, and both send. Within 24 hours of the
first POST the key makes the two requests one refund. Could the second POST be later than that, and so a new request?
Its worker looked up less than an hour before (it lives no longer), long after the first POST was executed, and found
the refund. What remains is a POST that Stripe answers with a 5xx and executes late, after it has removed the key: we
assume that Stripe executes what it has received within 23 hours or never. This is the only assumption beside those of
the charge protocol, and a 500 that the row knows of does not need it (next rule). A new key would need a stronger
assumption: that the earlier request is never executed.

**A spent key is never used again.** A key is spent when it replays a stored failure, or when a request without a
response is so old that Stripe may have removed the key. From then on the refund is looked up and not sent; after a day
it is NEEDS_REVIEW.

**The next key follows a replayed refusal, on the first day only.** A refusal that the key replays proves that this
request was not executed and never will be, although its cause (too little balance, say) may be gone. While Stripe keeps
all keys, every worker is led to the same next key, whatever its row says. From 22 hours after the request was made,
Stripe may soon have forgotten the first key, and beside it a later key could make a second refund. So later keys are
not used any more; and once the last request under one of them has been executed or never will be, the first key is used
again. The row has the number of a later key before a request uses it, so that a killed worker leaves it, too. One
exception: Stripe answers a later key with a 5xx and executes it hours late, and the row is lost meanwhile.

FAILED means that Stripe has no such refund and never will. It follows only from a refund that Stripe shows as failed,
or from a refusal and a lookup after it, if nothing else can still create the refund: no earlier claim is open, whose
worker may be about to send, and no earlier request is without a response, which Stripe may execute late. Otherwise it
is NEEDS_REVIEW. One exception: Stripe stores no refusal under the key. If the row is lost, another delivery sends the
request again, and Stripe refuses it for the same reason, unless money became available meanwhile: a bank returned what
was refunded by hand. Then it is made after all, and the row says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from onecharge.contract.refunds import RefundRequested, RefundState
from onecharge.payments.answers import ANSWERS, Action
from onecharge.payments.stripe_responses import Failure, ResponseKind
from onecharge.payments.time_bounds import OVERDUE_SECONDS
from onecharge.runtime.alarms import Cause

LATER_KEYS_SECONDS = 22 * 3600
"""How long after the request a later key may be used: until then Stripe has forgotten none. It may remove a key after
24 hours (Stripe documentation, "Idempotent requests"); each of two clocks may be an hour wrong."""

FIRST_KEY_AGAIN_SECONDS = 47 * 3600
"""From when on the first key is used again: 22 hours, one for the last worker, and 23 in which Stripe may still execute
what that worker sent, with one hour for the clocks."""

SPENT_KEY_SECONDS = 24 * 3600
"""How long a refund whose key is spent is looked up before it is NEEDS_REVIEW: Stripe may still execute it."""

REFUSED_SECONDS = 3600
"""How long a request that Stripe refuses as invalid is retried before it is NEEDS_REVIEW."""

# ---------------------------------------------------------------- what is stored


@dataclass(frozen=True)
class FrozenRefund:
    """What is refunded, frozen by the first claim: no later message or deploy changes it."""

    order_id: str
    refund_id: str
    attempt: int
    """The attempt that paid the order."""
    amount_minor: int
    currency: str
    payment_intent_id: str
    requested_at: int
    """Epoch seconds."""

    @classmethod
    def of(cls, refund: RefundRequested, payment_intent_id: str) -> Self:
        return cls(
            order_id=refund.order_id,
            refund_id=refund.refund_id,
            attempt=refund.attempt,
            amount_minor=refund.amount_minor,
            currency=refund.currency,
            payment_intent_id=payment_intent_id,
            requested_at=int(refund.requested_at.timestamp()),
        )

    def idempotency_key(self, number: int = 0) -> str:
        """The refund's idempotency key; after each refusal that a key replays, the next number."""
        key = f"refund:{self.order_id}:{self.refund_id}"
        return f"{key}:{number}" if number else key


@dataclass(frozen=True, kw_only=True)
class Refund:
    """One row of the payment service's Refunds table."""

    request: FrozenRefund
    state: RefundState
    lease_owner: str | None = None
    lease_expires_at: int = 0
    open_claims: int = 0
    """Claims that were not released, this one included: each of their workers may still be about to send."""
    revision: int = 0
    """Grows with every write."""
    unanswered_at: int | None = None
    """When the last request was sent whose result is unknown: Stripe may still execute it."""
    key_number: int = 0
    """The number of the key to send under: how many keys before it replay a refusal."""
    sending_stopped_at: int | None = None
    """Since when nothing is sent any more: what was sent under the key may still be executed."""
    refused_at: int | None = None
    """Since when Stripe refuses the request as invalid: a permanent failure."""
    stripe_refund_id: str | None = None
    failure_code: str | None = None
    pending_reason: str | None = None
    """Why Stripe has not sent the money yet, if it says so; only with SUCCEEDED."""
    finalized_at: int | None = None
    last_emitted_at: int | None = None
    correlation_id: str = ""

    @property
    def attempt(self) -> int:
        """The attempt that paid the order."""
        return self.request.attempt

    @property
    def amount_minor(self) -> int:
        return self.request.amount_minor

    @property
    def currency(self) -> str:
        return self.request.currency

    def is_overdue(self, now: float) -> bool:
        """Whether the refund is unfinished for so long after it was requested that it is an alarm."""
        return now - self.request.requested_at >= OVERDUE_SECONDS

    def may_use_later_keys(self, now: float) -> bool:
        """Whether Stripe still has all keys of this refund."""
        return now - self.request.requested_at < LATER_KEYS_SECONDS

    def may_use_first_key(self, now: float) -> bool:
        """Whether no request under a later key can be executed any more, or none was ever sent."""
        return self.key_number == 0 or now - self.request.requested_at >= FIRST_KEY_AGAIN_SECONDS

    @property
    def key(self) -> dict[str, str]:
        """The row's key attributes."""
        return {"order_id": self.request.order_id, "refund_id": self.request.refund_id}

    @property
    def log_fields(self) -> dict[str, object]:
        """What every log line about the row carries."""
        return {
            "order_id": self.request.order_id,
            "refund_id": self.request.refund_id,
            "attempt": self.request.attempt,
            "correlation_id": self.correlation_id,
            "payment_intent_id": self.request.payment_intent_id,
        }


# ---------------------------------------------------------------- what Stripe shows


@dataclass(frozen=True)
class StripeRefund:
    """A refund, as Stripe shows it."""

    stripe_refund_id: str
    status: str
    amount_minor: int
    currency: str
    failure_reason: str | None = None
    pending_reason: str | None = None
    """Of one that is pending: `processing`, `charge_pending` or `insufficient_funds`."""
    attempt: int = 1
    created: int = 0
    refund_id: str | None = None
    """Ours, from the metadata; None for a refund that was made by hand."""

    @property
    def has_failed(self) -> bool:
        """Whether the money is back on Stripe's side."""
        return self.status in ("failed", "canceled")


# ---------------------------------------------------------------- what follows

_UNANSWERED = (ResponseKind.NO_ANSWER, ResponseKind.RETRYABLE, ResponseKind.OTHER_OBJECT)
"""Stripe may have executed the request."""


@dataclass(frozen=True)
class FinalizeRefund:
    """Write the refund's last state."""

    state: RefundState
    stripe_refund_id: str | None = None
    code: str | None = None
    """Stripe's failure reason or error code; of NEEDS_REVIEW, the reason."""
    alarm: Cause | None = None
    """Why a person has to see it, if so."""
    stripe_message: str | None = field(default=None, repr=False)
    stripe_request_id: str | None = None
    pending_reason: str | None = None


@dataclass(frozen=True)
class Send:
    """Stripe shows no such refund: send the request, under the key of this number."""

    key_number: int


@dataclass(frozen=True)
class LookUpLater:
    """Release the lease, and look up again on the next delivery. `kept` is written to the row."""

    why: str
    alarm: Cause | None = None
    kept: Mapping[str, int | str] = field(default_factory=dict)


type RefundDecision = FinalizeRefund | Send | LookUpLater


def decide(
    refund: Refund, found: Sequence[StripeRefund], *, now: int, failure: Failure | None = None
) -> RefundDecision:
    """What to do next with a claimed refund, by Stripe's refunds of its id.

    Args:
        found: all of them; a lookup that may be incomplete raises LookupInconclusive instead.
        now: epoch seconds.
        failure: how Stripe answered the request to create it, before this lookup.
    """
    match found:
        case []:
            pass
        case [one]:
            return _finalize(refund.request, one)
        case _:
            return FinalizeRefund(RefundState.NEEDS_REVIEW, code="several refunds of one id", alarm=Cause.MONEY_DIFFERS)
    if failure is not None:
        return _decide_after_failure(refund, failure, now)
    is_forgotten = refund.unanswered_at is not None and now - refund.unanswered_at >= LATER_KEYS_SECONDS
    if refund.sending_stopped_at is not None or is_forgotten:
        return _wait_or_review(refund, "sending_stopped_at", SPENT_KEY_SECONDS, now)
    if refund.may_use_first_key(now):
        return Send(0)
    if not refund.may_use_later_keys(now):
        return LookUpLater("a request under a later key may still be executed")
    return Send(refund.key_number)


def _finalize(request: FrozenRefund, found: StripeRefund) -> FinalizeRefund:
    """What to finalize the row as, by the refund that Stripe shows."""
    final = FinalizeRefund(RefundState.NEEDS_REVIEW, found.stripe_refund_id, pending_reason=found.pending_reason)
    if (found.amount_minor, found.currency) != (request.amount_minor, request.currency):
        return replace(final, code="another amount or currency", alarm=Cause.NEEDS_REVIEW)
    match found.status:
        case "succeeded" | "pending":
            # Pending is on its way to the bank (Stripe API reference, "The Refund object").
            return replace(final, state=RefundState.SUCCEEDED, alarm=alarm_of_pending(found.pending_reason))
        case "failed" | "canceled" as status:
            # The customer has to be paid in another way: a person has to see it.
            code = found.failure_reason or status
            return replace(final, state=RefundState.FAILED, code=code, alarm=Cause.REFUND_FAILED)
        case _:
            return replace(final, code="requires_action, or a status that is not known", alarm=Cause.NEEDS_REVIEW)


def alarm_of_pending(pending_reason: str | None) -> Cause | None:
    """Stripe holds the refund until the balance is topped up, and fails it in the end."""
    return Cause.BALANCE_TOO_LOW if pending_reason == "insufficient_funds" else None


def _decide_after_failure(refund: Refund, failure: Failure, now: int) -> RefundDecision:
    answer = ANSWERS[failure.kind]
    match answer.refund:
        case Action.FAIL:
            # FAILED is final: no earlier worker and no earlier request may still create the refund.
            may_be_created = refund.open_claims > 1 or refund.unanswered_at is not None
            if may_be_created:
                return _final_for(RefundState.NEEDS_REVIEW, failure, Cause.NEEDS_REVIEW)
            return _final_for(RefundState.FAILED, failure, answer.refund_alarm)
        case Action.LOOK_UP:
            return _wait_or_review(refund, "sending_stopped_at", SPENT_KEY_SECONDS, now, failure)
        case Action.REFUSE:
            return _wait_or_review(refund, "refused_at", REFUSED_SECONDS, now, failure)
        case Action.KEY_SPENT if refund.may_use_later_keys(now):
            return Send(refund.key_number + 1)
        case _:
            # Our own request may have been executed: its answer is what is missing.
            unanswered = {"unanswered_at": now} if failure.kind in _UNANSWERED else {}
            return LookUpLater(failure.kind, answer.refund_alarm, {**unanswered, **failure.details})


def _wait_or_review(
    refund: Refund, since_name: str, seconds: int, now: int, failure: Failure | None = None
) -> FinalizeRefund | LookUpLater:
    since: int | None = getattr(refund, since_name)
    if since is not None and now - since >= seconds:
        failure = failure or Failure(ResponseKind.STORED_FAILURE, "result_unknown")
        return _final_for(RefundState.NEEDS_REVIEW, failure, Cause.NEEDS_REVIEW)
    details = failure.details if failure else {}
    cause = ANSWERS[failure.kind].refund_alarm if failure else Cause.STRIPE_INCONCLUSIVE
    why = failure.kind if failure else "the result of what was sent is unknown: it is only looked up"
    return LookUpLater(why, alarm=cause, kept={since_name: since or now, **details})


def _final_for(state: RefundState, failure: Failure, alarm: Cause | None) -> FinalizeRefund:
    return FinalizeRefund(
        state,
        code=failure.code or "invalid_request",
        alarm=alarm,
        stripe_message=failure.message,
        stripe_request_id=failure.request_id,
    )
