"""The refund protocol: every decision about a refund, pure. No clock, no environment, no I/O.

    claim ─► look up ─┬─► found: finalize as what it is
                      └─► none: send ─┬─► made: finalize
                                      └─► refused: look up once more ─► finalize as FAILED

Stripe makes as many refunds of a PaymentIntent as there is money for, so here the lookup carries what a PaymentIntent
carries for a charge. The list of a PaymentIntent's refunds is immediate and complete (Stripe API reference, "List all
refunds"), and each refund names its refund id in its metadata. Three rules:

**A lookup before every POST.** What was made is found, whatever became of its answer, its row or its key.

**One idempotency key for ever.** Two workers may both look up, find nothing, and both send. Within 24 hours of the
first POST the key makes that one refund. Could the second POST come later than that, as a new request? Its worker
looked up less than an hour before (it lives no longer), so long after the first POST was executed, and found it.
What is left is a POST that Stripe answers with a 5xx and executes late, after its key is forgotten: it executes what it
has received within 23 hours or never. That is an assumption, the only one beside those of the charge protocol, and a
500 that the row knows of does not even need it (below). A new key would need a stronger one: that the former request
is dead.

**A spent key is never used again.** A key is spent when it answers a stored failure, or when a request without an
answer is so old that Stripe may have forgotten the key. From then on the refund is looked up and not sent; after a day
a person looks.

FAILED means that Stripe has none of it and never will. It follows only from a refund that Stripe shows as failed, or
from a refusal and a lookup after it, if nothing else can still make it: no earlier claim is open, whose worker may be
about to send, and no earlier request went without an answer, which Stripe may execute late. Otherwise a person looks.
A refusal is not stored under the key: should a row that says FAILED be lost, a duplicate of its message is sent anew,
and is refused for the same reason unless somebody has made room at Stripe meanwhile.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Self

from onecharge.contract.refunds import RefundRequested, RefundState
from onecharge.payments.stripe_responses import Failure, ResponseKind
from onecharge.payments.time_bounds import LOOKUP_AGE_SECONDS, REFUSED_SECONDS

SPENT_KEY_SECONDS = 24 * 3600
"""How long a refund whose key is spent is looked up before a person has to: Stripe may still execute it."""

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

    @property
    def idempotency_key(self) -> str:
        """The one idempotency key of this refund."""
        return f"refund:{self.order_id}:{self.refund_id}"


@dataclass(frozen=True, kw_only=True)
class Refund:
    """One row of the payment service's Refunds table."""

    request: FrozenRefund
    state: RefundState
    lease_owner: str | None = None
    lease_expires_at: int = 0
    open_claims: int = 0
    """Claims that were never released, this one included: each of their workers may still be about to send."""
    revision: int = 0
    """Grows with every write."""
    unanswered_at: int | None = None
    """When a request was last sent whose result is unknown: Stripe may still execute it."""
    key_spent_at: int | None = None
    """Since when the key is known to be spent: nothing is sent any more."""
    refused_at: int | None = None
    """Since when Stripe refuses the request as invalid, which no retry mends."""
    stripe_refund_id: str | None = None
    failure_code: str | None = None
    finalized_at: int | None = None
    last_emitted_at: int | None = None
    is_internal: bool = False
    """The payment service's own refund, of which the order service knows nothing: its outcome is not published."""
    correlation_id: str = ""


def refund_id_of_canceled_order(order_id: str, payment_intent_id: str) -> str:
    """The one refund of a PaymentIntent that succeeded although its order is canceled."""
    derived_from = f"{order_id}:{payment_intent_id}:charged although canceled"
    return "rfd_" + hashlib.sha256(derived_from.encode()).hexdigest()[:32]


# ---------------------------------------------------------------- what Stripe shows, or answers


@dataclass(frozen=True)
class FoundRefund:
    """A refund as Stripe shows it, with our refund id in its metadata."""

    stripe_refund_id: str
    status: str
    amount_minor: int
    currency: str
    failure_reason: str | None = None
    attempt: int = 1
    created: int = 0


class RefundResponseKind(StrEnum):
    """What Stripe has of a refund, or how it answers the request to make it."""

    MADE = "succeeded, pending"
    RETURNED = "failed, canceled"
    REQUIRES_ACTION = "requires_action, or a status that is not known"
    OTHER_MONEY = "another amount or currency"
    SEVERAL = "several refunds of one id"
    REFUSED = "charge_already_refunded, charge_disputed, more than is left, an amount that Stripe does not take"
    UNKNOWN = "no answer, 409, 424, 429, 500, 502, 503, 504"
    KEY_SPENT = "any of these with Idempotent-Replayed, 400 idempotency_error"
    ACCOUNT = "401, 403, 404, wrong mode, account not activated, too little balance, a rate limit in a 400"
    INVALID = "another 4xx"


class RefundAction(Enum):
    """What follows from it."""

    FINALIZE = auto()
    """It is what Stripe shows."""
    LOOK_UP_THEN_FAIL = auto()
    """Look up once more, then finalize as FAILED; NEEDS_REVIEW if another worker or request may still make it."""
    RETRY = auto()
    """The result is unknown, or it is not the refund's fault: release the row, back off, look up, and send again."""
    LOOK_UP_ONLY = auto()
    """Look up again with backoff, and never send it again; after a day NEEDS_REVIEW."""
    REFUSE = auto()
    """No retry mends it, unless we do: wait an hour with an alarm, then NEEDS_REVIEW."""


@dataclass(frozen=True)
class RefundRule:
    """What one kind of response means; `state` says as what the refund is finalized, if it is."""

    action: RefundAction
    state: RefundState | None = None
    alarm: bool = False


_REVIEW = RefundRule(RefundAction.FINALIZE, RefundState.NEEDS_REVIEW, alarm=True)

REFUND_RULES: Mapping[RefundResponseKind, RefundRule] = {
    # Stripe has accepted it: pending is on its way to the bank (Stripe API reference, "The Refund object").
    RefundResponseKind.MADE: RefundRule(RefundAction.FINALIZE, RefundState.SUCCEEDED),
    # Whoever was to get the money has to be paid in another way: somebody should know.
    RefundResponseKind.RETURNED: RefundRule(RefundAction.FINALIZE, RefundState.FAILED, alarm=True),
    RefundResponseKind.REQUIRES_ACTION: _REVIEW,
    RefundResponseKind.OTHER_MONEY: _REVIEW,
    RefundResponseKind.SEVERAL: _REVIEW,
    # The amount was reserved and there to be refunded: whoever refunded past this protocol should be known.
    RefundResponseKind.REFUSED: RefundRule(RefundAction.LOOK_UP_THEN_FAIL, RefundState.FAILED, alarm=True),
    RefundResponseKind.UNKNOWN: RefundRule(RefundAction.RETRY),
    RefundResponseKind.KEY_SPENT: RefundRule(RefundAction.LOOK_UP_ONLY, RefundState.NEEDS_REVIEW, alarm=True),
    RefundResponseKind.ACCOUNT: RefundRule(RefundAction.RETRY, alarm=True),
    RefundResponseKind.INVALID: RefundRule(RefundAction.REFUSE, RefundState.NEEDS_REVIEW, alarm=True),
}
"""docs/protocol.md shows the same table, and a test holds the two against each other."""

_KIND_OF: Mapping[ResponseKind, RefundResponseKind] = {
    ResponseKind.NO_ANSWER: RefundResponseKind.UNKNOWN,
    ResponseKind.RETRYABLE: RefundResponseKind.UNKNOWN,
    ResponseKind.STORED_FAILURE: RefundResponseKind.KEY_SPENT,
    ResponseKind.OTHER_PARAMETERS: RefundResponseKind.KEY_SPENT,
    ResponseKind.AMOUNT_REFUSED: RefundResponseKind.REFUSED,
    ResponseKind.ACCOUNT: RefundResponseKind.ACCOUNT,
    # The secret may be another account's: no refund is failed for it.
    ResponseKind.NOT_FOUND: RefundResponseKind.ACCOUNT,
}
_REFUSED_CODES = frozenset({"charge_already_refunded", "charge_disputed", "refund_disputed_payment"})
_BALANCE_CODES = frozenset({"balance_insufficient", "insufficient_funds"})
# Stripe gives no code of its own to a refund of more than is left; its texts say so.
_MORE_THAN_IS_LEFT = "unrefunded amount on charge", "greater than charge amount"


def kind_of(failure: Failure) -> RefundResponseKind:
    """Which kind of response a failed request to refund is. What is not recognized is never taken for a refusal."""
    known = _KIND_OF.get(failure.kind)
    if known is not None:
        return known
    if failure.code in _BALANCE_CODES:
        return RefundResponseKind.ACCOUNT
    text = (failure.message or "").lower()
    if failure.code in _REFUSED_CODES or any(words in text for words in _MORE_THAN_IS_LEFT):
        return RefundResponseKind.REFUSED
    return RefundResponseKind.INVALID


def kind_of_refund(request: FrozenRefund, found: FoundRefund) -> RefundResponseKind:
    """What a refund at Stripe is, and whether it is of the money that was agreed."""
    if (found.amount_minor, found.currency) != (request.amount_minor, request.currency):
        return RefundResponseKind.OTHER_MONEY
    match found.status:
        case "succeeded" | "pending":
            return RefundResponseKind.MADE
        case "failed" | "canceled":
            return RefundResponseKind.RETURNED
        case _:
            return RefundResponseKind.REQUIRES_ACTION


# ---------------------------------------------------------------- what follows


@dataclass(frozen=True)
class FinalizeRefund:
    """Write the refund's last state."""

    state: RefundState
    stripe_refund_id: str | None = None
    code: str | None = None
    """Stripe's failure reason or error code; or why a person has to look."""
    alarm: bool = False
    stripe_message: str | None = field(default=None, repr=False)
    stripe_request_id: str | None = None


@dataclass(frozen=True)
class Send:
    """Stripe has none of it: send it, under its one key."""


@dataclass(frozen=True)
class WaitAndLookUp:
    """Release the row with what is to be kept, and look up again on the next delivery."""

    why: str
    alarm: bool = False
    kept: Mapping[str, int | str] = field(default_factory=dict)


def decide_refund(
    refund: Refund, found: Sequence[FoundRefund], *, now: int, failure: Failure | None = None
) -> FinalizeRefund | Send | WaitAndLookUp:
    """What to do with a claimed refund, by all refunds of its id that Stripe has.

    Args:
        found: complete, or LookupInconclusive would have been raised.
        failure: how Stripe answered the request to make it, before it was looked up.
    """
    match found:
        case []:
            pass
        case [one]:
            return _finalize(refund.request, one)
        case _:
            return FinalizeRefund(RefundState.NEEDS_REVIEW, code="several refunds of one id", alarm=True)
    if failure is not None:
        return _decide_after_failure(refund, failure, now)
    is_forgotten = refund.unanswered_at is not None and now - refund.unanswered_at >= LOOKUP_AGE_SECONDS
    if refund.key_spent_at is not None or is_forgotten:
        return _wait_or_review(refund, "key_spent_at", SPENT_KEY_SECONDS, now)
    return Send()


def _finalize(request: FrozenRefund, found: FoundRefund) -> FinalizeRefund:
    kind = kind_of_refund(request, found)
    rule = REFUND_RULES[kind]
    code: str | None = kind if rule.state is RefundState.NEEDS_REVIEW else None
    if rule.state is RefundState.FAILED:
        code = found.failure_reason or found.status
    return FinalizeRefund(rule.state or RefundState.NEEDS_REVIEW, found.stripe_refund_id, code, rule.alarm)


def _decide_after_failure(refund: Refund, failure: Failure, now: int) -> FinalizeRefund | WaitAndLookUp:
    kind = kind_of(failure)
    rule = REFUND_RULES[kind]
    match rule.action:
        case RefundAction.LOOK_UP_THEN_FAIL:
            # Said to be FAILED, it must not be made by an earlier worker, or by an earlier request.
            may_be_made = refund.open_claims > 1 or refund.unanswered_at is not None
            return _final_for(RefundState.NEEDS_REVIEW if may_be_made else RefundState.FAILED, failure)
        case RefundAction.LOOK_UP_ONLY:
            return _wait_or_review(refund, "key_spent_at", SPENT_KEY_SECONDS, now, failure)
        case RefundAction.REFUSE:
            return _wait_or_review(refund, "refused_at", REFUSED_SECONDS, now, failure)
        case _:
            unanswered = {"unanswered_at": now} if kind is RefundResponseKind.UNKNOWN else {}
            return WaitAndLookUp(kind, rule.alarm, {**unanswered, **_details(failure)})


def _wait_or_review(
    refund: Refund, since_name: str, seconds: int, now: int, failure: Failure | None = None
) -> FinalizeRefund | WaitAndLookUp:
    since: int | None = getattr(refund, since_name)
    if since is not None and now - since >= seconds:
        return _final_for(RefundState.NEEDS_REVIEW, failure or Failure(ResponseKind.STORED_FAILURE, since_name))
    return WaitAndLookUp(f"waits since {since_name}", alarm=True, kept={since_name: since or now, **_details(failure)})


def _final_for(state: RefundState, failure: Failure) -> FinalizeRefund:
    return FinalizeRefund(
        state,
        code=failure.code or "invalid_request",
        alarm=True,
        stripe_message=failure.message,
        stripe_request_id=failure.request_id,
    )


def _details(failure: Failure | None) -> dict[str, str]:
    if failure is None:
        return {}
    kept = {"stripe_message": failure.message, "stripe_request_id": failure.request_id}
    return {name: value for name, value in kept.items() if value is not None}


# ---------------------------------------------------------------- what Stripe says unasked


class RefundDiscrepancy(StrEnum):
    """How the refunds of one id at Stripe differ from its row, after an event or a scheduled run named it."""

    NONE = "row and Stripe agree, or a worker will see to it"
    RETURNED = "it failed, whatever the row said: the row becomes FAILED"
    LOST_ROW = "it failed, and there is no row: the row is written anew as FAILED"
    MADE_AFTER_FAILED = "the row says FAILED, and Stripe has made it"
    SEVERAL = "several refunds of one id"


def find_refund_discrepancy(refund: Refund | None, found: Sequence[FoundRefund]) -> RefundDiscrepancy:
    """Compare. `found` is complete, so the order and the number of events do not matter.

    A row that is PENDING takes the failure as well: its worker may have read `pending` before, and would write
    SUCCEEDED after the only event that says otherwise.
    """
    live = [each for each in found if each.status not in ("failed", "canceled")]
    if len(found) > 1:
        return RefundDiscrepancy.SEVERAL
    if live:
        is_failed = refund is not None and refund.state is RefundState.FAILED
        return RefundDiscrepancy.MADE_AFTER_FAILED if is_failed else RefundDiscrepancy.NONE
    if not found:
        return RefundDiscrepancy.NONE
    if refund is None:
        return RefundDiscrepancy.LOST_ROW
    unsaid = refund.state in (RefundState.PENDING, RefundState.SUCCEEDED)
    return RefundDiscrepancy.RETURNED if unsaid else RefundDiscrepancy.NONE
