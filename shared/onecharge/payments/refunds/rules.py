"""What each kind of response means for a refund. docs/protocol.md has the same table, and a test compares them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from onecharge.contract.refunds import RefundState
from onecharge.payments.stripe_responses import Failure, ResponseKind
from onecharge.runtime.alarms import Cause


class RefundResponseKind(StrEnum):
    """The refund that Stripe shows, or how it answered the request to create one."""

    MADE = "succeeded, pending"
    RETURNED = "failed, canceled"
    REQUIRES_ACTION = "requires_action, or a status that is not known"
    OTHER_MONEY = "another amount or currency"
    SEVERAL = "several refunds of one id"
    REFUSED = "charge_already_refunded, charge_disputed, more than is left, an amount that Stripe does not take"
    UNKNOWN = "no answer, 409, 424, 429, 500, 502, 503, 504"
    OTHER_OBJECT = "an answer about another object than was asked for"
    KEY_SPENT = "any of these with Idempotent-Replayed, 400 idempotency_error"
    KEY_REPLACED = "401 or 403 of an API key that was replaced since"
    ACCOUNT = "401, 403, 404, wrong mode, account not activated, too little balance, a rate limit in a 400"
    INVALID = "another 4xx"


class NextAction(Enum):
    """What follows from a response."""

    FINALIZE = auto()
    """Finalize as what Stripe shows."""
    LOOK_UP_THEN_FAIL = auto()
    """Look up once more, then finalize as FAILED; NEEDS_REVIEW if another worker or request may still create it."""
    RETRY = auto()
    """The result is unknown, or the refund is not the cause: release the lease, back off, look up, and send again."""
    LOOK_UP_ONLY = auto()
    """Look up again with backoff, and never send again; after a day NEEDS_REVIEW."""
    REFUSE = auto()
    """No retry helps unless we change something: retry for an hour with an alarm, then NEEDS_REVIEW."""


@dataclass(frozen=True)
class Rule:
    """What follows from one kind of response."""

    action: NextAction
    state: RefundState | None = None
    """As what the refund is finalized, if it is."""
    alarm: Cause | None = None
    """Why a person has to see it, if so."""


_REVIEW = Rule(NextAction.FINALIZE, RefundState.NEEDS_REVIEW, alarm=Cause.NEEDS_REVIEW)

RULES: Mapping[RefundResponseKind, Rule] = {
    # Stripe has accepted it: pending is on its way to the bank (Stripe API reference, "The Refund object").
    RefundResponseKind.MADE: Rule(NextAction.FINALIZE, RefundState.SUCCEEDED),
    # The customer has to be paid in another way: a person has to see it.
    RefundResponseKind.RETURNED: Rule(NextAction.FINALIZE, RefundState.FAILED, alarm=Cause.REFUND_FAILED),
    RefundResponseKind.REQUIRES_ACTION: _REVIEW,
    RefundResponseKind.OTHER_MONEY: _REVIEW,
    RefundResponseKind.SEVERAL: _REVIEW,
    # The amount was reserved for this refund: somebody refunded outside this protocol.
    RefundResponseKind.REFUSED: Rule(NextAction.LOOK_UP_THEN_FAIL, RefundState.FAILED, alarm=Cause.REFUND_FAILED),
    RefundResponseKind.UNKNOWN: Rule(NextAction.RETRY),
    RefundResponseKind.OTHER_OBJECT: Rule(NextAction.RETRY, alarm=Cause.STRIPE_INCONCLUSIVE),
    RefundResponseKind.KEY_SPENT: Rule(
        NextAction.LOOK_UP_ONLY, RefundState.NEEDS_REVIEW, alarm=Cause.STRIPE_INCONCLUSIVE
    ),
    RefundResponseKind.KEY_REPLACED: Rule(NextAction.RETRY),
    RefundResponseKind.ACCOUNT: Rule(NextAction.RETRY, alarm=Cause.STRIPE_ACCOUNT),
    RefundResponseKind.INVALID: Rule(NextAction.REFUSE, RefundState.NEEDS_REVIEW, alarm=Cause.REQUEST_REFUSED),
}

_KIND_OF: Mapping[ResponseKind, RefundResponseKind] = {
    ResponseKind.NO_ANSWER: RefundResponseKind.UNKNOWN,
    ResponseKind.OTHER_OBJECT: RefundResponseKind.OTHER_OBJECT,
    ResponseKind.RETRYABLE: RefundResponseKind.UNKNOWN,
    ResponseKind.STORED_FAILURE: RefundResponseKind.KEY_SPENT,
    ResponseKind.OTHER_PARAMETERS: RefundResponseKind.KEY_SPENT,
    ResponseKind.AMOUNT_REFUSED: RefundResponseKind.REFUSED,
    ResponseKind.KEY_REPLACED: RefundResponseKind.KEY_REPLACED,
    ResponseKind.ACCOUNT: RefundResponseKind.ACCOUNT,
    # The API key may be another account's: no refund is failed for it.
    ResponseKind.NOT_FOUND: RefundResponseKind.ACCOUNT,
}
_REFUSED_CODES = frozenset({"charge_already_refunded", "charge_disputed", "refund_disputed_payment"})
_BALANCE_CODES = frozenset({"balance_insufficient", "insufficient_funds"})
# Stripe has no error code for a refund of more than is left: only the message says so.
_MORE_THAN_IS_LEFT = "unrefunded amount on charge", "greater than charge amount"


def kind_of(failure: Failure) -> RefundResponseKind:
    """Which kind of response a failed request is. An unknown error is never classified as a refusal."""
    known = _KIND_OF.get(failure.kind)
    if known is not None:
        return known
    if failure.code in _BALANCE_CODES:
        return RefundResponseKind.ACCOUNT
    text = (failure.message or "").lower()
    if failure.code in _REFUSED_CODES or any(words in text for words in _MORE_THAN_IS_LEFT):
        return RefundResponseKind.REFUSED
    return RefundResponseKind.INVALID
