"""What follows from a response that is not the requested object; docs/protocol.md has the same table."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

import stripe

from onecharge.payments.stripe_responses import LookupInconclusive, ResponseKind, classify
from onecharge.runtime.alarms import Cause


class Action(Enum):
    """What follows from a response. A refund is looked up before each request."""

    RETRY = auto()
    """The result is unknown, or the request is not the cause: release the lease, and back off."""
    RETRIEVE = auto()
    """Of a charge: retrieve the PaymentIntent. Its status decides, not the response."""
    KEY_SPENT = auto()
    """The key is answered like this forever. A create: the next generation. A confirm: retrieve; if that decides
    nothing, cancel it as abandoned. A refund: send under the next key, on the first day; after that as RETRY."""
    LOOK_UP = auto()
    """A create: the next generation, after a lookup at any age. A confirm: retrieve.
    A refund: look up with backoff, and never send again; after a day NEEDS_REVIEW."""
    DECLINE = auto()
    """Finalize the charge as DECLINED, with a code that a shop can show: another card is another attempt."""
    FAIL = auto()
    """Finalize the refund as FAILED, or as NEEDS_REVIEW if another worker or request may still create it."""
    REFUSE = auto()
    """No retry helps unless we change something: retry for an hour with an alarm, then NEEDS_REVIEW."""


@dataclass(frozen=True)
class Answer:
    """What a charge and what a refund makes of one kind of response, and why a person has to see it, if so."""

    charge: Action
    refund: Action
    charge_alarm: Cause | None = None
    refund_alarm: Cause | None = None


_ACCOUNT = Answer(Action.RETRY, Action.RETRY, Cause.STRIPE_ACCOUNT, Cause.STRIPE_ACCOUNT)

ANSWERS: Mapping[ResponseKind, Answer] = {
    ResponseKind.NO_ANSWER: Answer(Action.RETRY, Action.RETRY),
    ResponseKind.OTHER_OBJECT: Answer(Action.RETRY, Action.RETRY, Cause.STRIPE_INCONCLUSIVE, Cause.STRIPE_INCONCLUSIVE),
    ResponseKind.RETRYABLE: Answer(Action.RETRY, Action.RETRY),
    # A charge confirms one PaymentIntent once; of refunds Stripe may still make another one.
    ResponseKind.STORED_FAILURE: Answer(Action.KEY_SPENT, Action.LOOK_UP, refund_alarm=Cause.STRIPE_INCONCLUSIVE),
    # The same request was refused before, with its alarm; if its cause is still there, the next key's request says so.
    ResponseKind.STORED_REFUSAL: Answer(Action.KEY_SPENT, Action.KEY_SPENT),
    ResponseKind.STORED_AMOUNT_TOO_LARGE: Answer(Action.KEY_SPENT, Action.FAIL, refund_alarm=Cause.REFUND_FAILED),
    ResponseKind.DECLINED: Answer(Action.RETRIEVE, Action.REFUSE, refund_alarm=Cause.REQUEST_REFUSED),
    ResponseKind.PAYMENT_METHOD_REFUSED: Answer(Action.DECLINE, Action.REFUSE, refund_alarm=Cause.REQUEST_REFUSED),
    ResponseKind.AMOUNT_REFUSED: Answer(Action.DECLINE, Action.FAIL, refund_alarm=Cause.REFUND_FAILED),
    # The amount was reserved for this refund: somebody refunded outside this protocol.
    ResponseKind.REFUND_REFUSED: Answer(Action.REFUSE, Action.FAIL, Cause.REQUEST_REFUSED, Cause.REFUND_FAILED),
    ResponseKind.UNEXPECTED_STATE: Answer(Action.RETRIEVE, Action.REFUSE, refund_alarm=Cause.REQUEST_REFUSED),
    ResponseKind.OTHER_PARAMETERS: Answer(
        Action.LOOK_UP, Action.LOOK_UP, Cause.REQUEST_REFUSED, Cause.STRIPE_INCONCLUSIVE
    ),
    ResponseKind.API_KEY_REPLACED: Answer(Action.RETRY, Action.RETRY),
    ResponseKind.ACCOUNT: _ACCOUNT,
    # The API key may be another account's: nothing is failed for it.
    ResponseKind.NOT_FOUND: _ACCOUNT,
    ResponseKind.INVALID: Answer(Action.REFUSE, Action.REFUSE, Cause.REQUEST_REFUSED, Cause.REQUEST_REFUSED),
}


def cause_of_error(error: LookupInconclusive | stripe.StripeError) -> Cause | None:
    """The alarm's cause if a person must act, else None."""
    if isinstance(error, LookupInconclusive):
        return Cause.STRIPE_INCONCLUSIVE
    return ANSWERS[classify(error).kind].charge_alarm
