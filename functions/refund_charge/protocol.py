"""The refund protocol: the decisions, pure. It is the charge protocol's, but for what Stripe answers and shows.

A refund that Stripe has accepted counts as made: `pending` is on its way to the bank. One that Stripe shows as `failed`
or `canceled` has moved no money, or has given it back to the account. `requires_action`, which refunds to a card never
are, is for a person (Stripe documentation, "The Refund object").
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from onecharge.events import RefundRequested
from onecharge.payments.protocol import Answer, KeyedRow, LookAgain, OpenNewKey, Then
from onecharge.states import RefundState


@dataclass(frozen=True)
class FrozenRefund:
    """What is sent to Stripe for one refund, frozen by the first claim; `parameters_json` is the request's body."""

    order_id: str
    refund_id: str
    attempt: int
    amount_minor: int
    currency: str
    parameters_json: str

    @classmethod
    def of(cls, refund: RefundRequested, payment_intent_id: str) -> "FrozenRefund":
        parameters = {
            "payment_intent": payment_intent_id,
            "amount": refund.amount_minor,
            "metadata": {"order_id": refund.order_id, "refund_id": refund.refund_id},
        }
        return cls(
            order_id=refund.order_id,
            refund_id=refund.refund_id,
            attempt=refund.attempt,
            amount_minor=refund.amount_minor,
            currency=refund.currency,
            parameters_json=json.dumps(parameters, sort_keys=True, separators=(",", ":")),
        )

    @property
    def payment_intent_id(self) -> str:
        return str(json.loads(self.parameters_json)["payment_intent"])


@dataclass(frozen=True, kw_only=True)
class RefundRow(KeyedRow):
    """One row of the RefundLedger table, as a worker that claimed it holds it."""

    request: FrozenRefund
    state: RefundState

    @property
    def idempotency_key(self) -> str:
        """The Stripe key of this refund and generation: the same for every delivery."""
        return f"refund:{self.request.order_id}:{self.request.refund_id}:{self.key_generation}"


@dataclass(frozen=True)
class FoundRefund:
    """A refund at Stripe that carries the refund id in its metadata."""

    stripe_refund_id: str
    status: str
    amount_minor: int
    currency: str
    failure_reason: str | None = None


@dataclass(frozen=True)
class RefundReply:
    """An answer with what it carries; `code` is Stripe's error code, or why the refund failed."""

    answer: Answer
    stripe_refund_id: str | None = None
    code: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What one answer means; `state` says as what the row is settled, if it is."""

    then: Then
    state: RefundState | None = None
    alarm: bool = False


_SAME_KEY_AGAIN = Outcome(Then.SAME_KEY_AGAIN)
_NEEDS_REVIEW = Outcome(Then.SETTLE, RefundState.NEEDS_REVIEW, alarm=True)
# The amount was reserved, and was there to be refunded: whoever refunded past this protocol should be known.
_FAILED = Outcome(Then.SETTLE, RefundState.FAILED, alarm=True)

OUTCOMES: Mapping[Answer, Outcome] = {
    Answer.SUCCEEDED: Outcome(Then.SETTLE, RefundState.SUCCEEDED),
    Answer.DECLINED: _FAILED,
    Answer.REFUSED: _FAILED,
    Answer.NO_ANSWER: _SAME_KEY_AGAIN,
    Answer.KEY_IN_USE: _SAME_KEY_AGAIN,
    Answer.RATE_LIMITED: _SAME_KEY_AGAIN,
    Answer.UNAVAILABLE: _SAME_KEY_AGAIN,
    Answer.BAD_API_KEY: Outcome(Then.SAME_KEY_AGAIN, alarm=True),
    Answer.SERVER_ERROR: Outcome(Then.LOOK_FIRST),
    Answer.REQUIRES_ACTION: _NEEDS_REVIEW,
    Answer.OTHER_REQUEST: _NEEDS_REVIEW,
    Answer.OTHER_AMOUNT: _NEEDS_REVIEW,
}


@dataclass(frozen=True)
class Settle:
    """Stripe shows what the refund came to."""

    reply: RefundReply


def reply_for(request: FrozenRefund, found: FoundRefund) -> RefundReply:
    """What a refund's status at Stripe says, and whether it is of the money that was agreed."""
    if (found.amount_minor, found.currency) != (request.amount_minor, request.currency):
        return RefundReply(Answer.OTHER_AMOUNT, found.stripe_refund_id)
    match found.status:
        case "succeeded" | "pending":
            return RefundReply(Answer.SUCCEEDED, found.stripe_refund_id)
        case "failed" | "canceled":
            return RefundReply(Answer.REFUSED, found.stripe_refund_id, found.failure_reason or found.status)
        case _:
            return RefundReply(Answer.REQUIRES_ACTION, found.stripe_refund_id, found.status)


def after_look(row: RefundRow, found: list[FoundRefund], now: float) -> Settle | OpenNewKey | LookAgain:
    """What follows from all refunds of this id that Stripe shows. `found` must be complete."""
    match found:
        case []:
            # What was on its way when the key was last used has had its time to show.
            return OpenNewKey() if now >= row.appears_until else LookAgain()
        case [refund]:
            return Settle(reply_for(row.request, refund))
        case _:
            # Two refunds of one id should not exist: a person has to see them.
            return Settle(RefundReply(Answer.OTHER_REQUEST, code="several refunds of one id"))
