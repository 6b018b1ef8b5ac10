"""What follows from a response that is not the requested object: of a refund, what to do; of both, the alarm.

A charge decides by the PaymentIntent's status, not by the response.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

import stripe

from onecharge.payments.stripe_responses import LookupInconclusive, ResponseKind, classify
from onecharge.runtime.alarms import Cause


class Action(Enum):
    """What follows for a refund, which is looked up before each request."""

    RETRY = auto()
    """The result is unknown, or the request is not the cause: release the lease, and back off."""
    KEY_SPENT = auto()
    """The key is answered like this permanently: send under the next key, on the first day; after that as RETRY."""
    LOOK_UP = auto()
    """Look up with backoff, and never send again; after a day NEEDS_REVIEW."""
    FAIL = auto()
    """Finalize it as FAILED, or as NEEDS_REVIEW if another worker or request may still create it."""
    REFUSE = auto()
    """No retry helps unless we change something: retry for an hour with an alarm, then NEEDS_REVIEW."""


@dataclass(frozen=True)
class Answer:
    """What a refund makes of one kind of response, and why a person has to see it, if so."""

    refund: Action
    charge_alarm: Cause | None = None
    refund_alarm: Cause | None = None


_ACCOUNT = Answer(Action.RETRY, Cause.STRIPE_ACCOUNT, Cause.STRIPE_ACCOUNT)
_OF_A_CHARGE = Answer(Action.REFUSE, refund_alarm=Cause.REQUEST_REFUSED)

ANSWERS: Mapping[ResponseKind, Answer] = {
    ResponseKind.NO_ANSWER: Answer(Action.RETRY),
    ResponseKind.OTHER_OBJECT: Answer(Action.RETRY, Cause.STRIPE_INCONCLUSIVE, Cause.STRIPE_INCONCLUSIVE),
    ResponseKind.RETRYABLE: Answer(Action.RETRY),
    # Stripe may still execute what it has answered with a 5xx, and a PaymentIntent takes several refunds.
    ResponseKind.STORED_FAILURE: Answer(Action.LOOK_UP, refund_alarm=Cause.STRIPE_INCONCLUSIVE),
    # The same request was refused before, with its alarm; if its cause is still there, the next key's request says so.
    ResponseKind.STORED_REFUSAL: Answer(Action.KEY_SPENT),
    ResponseKind.STORED_AMOUNT_TOO_LARGE: Answer(Action.FAIL, refund_alarm=Cause.REFUND_FAILED),
    ResponseKind.DECLINED: _OF_A_CHARGE,
    ResponseKind.PAYMENT_METHOD_REFUSED: _OF_A_CHARGE,
    ResponseKind.UNEXPECTED_STATE: _OF_A_CHARGE,
    # The amount was reserved for this refund: somebody refunded outside this protocol.
    ResponseKind.AMOUNT_REFUSED: Answer(Action.FAIL, Cause.REQUEST_REFUSED, Cause.REFUND_FAILED),
    ResponseKind.REFUND_REFUSED: Answer(Action.FAIL, Cause.REQUEST_REFUSED, Cause.REFUND_FAILED),
    ResponseKind.OTHER_PARAMETERS: Answer(Action.LOOK_UP, Cause.REQUEST_REFUSED, Cause.STRIPE_INCONCLUSIVE),
    ResponseKind.API_KEY_REPLACED: Answer(Action.RETRY),
    ResponseKind.ACCOUNT: _ACCOUNT,
    # The API key may be another account's: nothing is failed for it.
    ResponseKind.NOT_FOUND: _ACCOUNT,
    ResponseKind.INVALID: Answer(Action.REFUSE, Cause.REQUEST_REFUSED, Cause.REQUEST_REFUSED),
}


def cause_of_error(error: LookupInconclusive | stripe.StripeError) -> Cause | None:
    """The alarm's cause if a person must act, else None."""
    if isinstance(error, LookupInconclusive):
        return Cause.STRIPE_INCONCLUSIVE
    return ANSWERS[classify(error).kind].charge_alarm
