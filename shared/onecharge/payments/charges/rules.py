"""What each kind of response means for a charge. docs/protocol.md has the same table, and a test compares them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from onecharge.payments.stripe_responses import ResponseKind
from onecharge.runtime.alarms import Cause


class NextAction(Enum):
    """What follows from a response."""

    RETRY = auto()
    """The result is unknown: release the lease, and back off."""
    RETRIEVE = auto()
    """Retrieve the PaymentIntent: its status decides, not the response."""
    DECLINE = auto()
    """Finalize as DECLINED, with a code that a shop can show: another card is another attempt."""
    LOOK_UP = auto()
    """Look up every PaymentIntent of the order first."""
    REFUSE = auto()
    """No retry helps unless we change something: retry for an hour with an alarm, then NEEDS_REVIEW."""


@dataclass(frozen=True)
class Rule:
    """What follows from one kind of response."""

    action: NextAction
    alarm: Cause | None = None
    """Why a person has to see it, if so."""


RULES: Mapping[ResponseKind, Rule] = {
    ResponseKind.NO_ANSWER: Rule(NextAction.RETRY),
    ResponseKind.OTHER_OBJECT: Rule(NextAction.RETRY, alarm=Cause.STRIPE_INCONCLUSIVE),
    ResponseKind.RETRYABLE: Rule(NextAction.RETRY),
    ResponseKind.STORED_FAILURE: Rule(NextAction.RETRIEVE),
    ResponseKind.DECLINED: Rule(NextAction.RETRIEVE),
    ResponseKind.PAYMENT_METHOD_REFUSED: Rule(NextAction.DECLINE),
    ResponseKind.AMOUNT_REFUSED: Rule(NextAction.DECLINE),
    ResponseKind.UNEXPECTED_STATE: Rule(NextAction.RETRIEVE),
    ResponseKind.OTHER_PARAMETERS: Rule(NextAction.LOOK_UP, alarm=Cause.REQUEST_REFUSED),
    ResponseKind.KEY_REPLACED: Rule(NextAction.RETRY),
    ResponseKind.ACCOUNT: Rule(NextAction.RETRY, alarm=Cause.STRIPE_ACCOUNT),
    ResponseKind.NOT_FOUND: Rule(NextAction.RETRY, alarm=Cause.STRIPE_ACCOUNT),
    ResponseKind.INVALID: Rule(NextAction.REFUSE, alarm=Cause.REQUEST_REFUSED),
}
