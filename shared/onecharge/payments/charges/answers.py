"""What a charge does with a response that is not a PaymentIntent; docs/protocol.md has the same table."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from onecharge.payments.stripe_responses import ResponseKind
from onecharge.runtime.alarms import Cause


class ChargeAction(Enum):
    """What follows from a response."""

    RETRY = auto()
    """The result is unknown: release the lease, and back off."""
    RETRIEVE = auto()
    """Retrieve the PaymentIntent: its status decides, not the response."""
    NEXT_KEY = auto()
    """The key is answered like this forever. A create: the next generation. A confirm: retrieve; undecided: abandon."""
    DECLINE = auto()
    """Finalize as DECLINED, with a code that a shop can show: another card is another attempt."""
    LOOK_UP = auto()
    """A create: the next generation, after a lookup at any age. A confirm: retrieve."""
    REFUSE = auto()
    """No retry helps unless we change something: retry for an hour with an alarm, then NEEDS_REVIEW."""


@dataclass(frozen=True)
class ChargeRule:
    """What follows from one kind of response."""

    action: ChargeAction
    alarm: Cause | None = None
    """Why a person has to see it, if so."""


CHARGE_RULES: Mapping[ResponseKind, ChargeRule] = {
    ResponseKind.NO_ANSWER: ChargeRule(ChargeAction.RETRY),
    ResponseKind.OTHER_OBJECT: ChargeRule(ChargeAction.RETRY, alarm=Cause.STRIPE_INCONCLUSIVE),
    ResponseKind.RETRYABLE: ChargeRule(ChargeAction.RETRY),
    ResponseKind.STORED_FAILURE: ChargeRule(ChargeAction.NEXT_KEY),
    # The same request was refused before, with its alarm; if its cause is still there, the next key's request says so.
    ResponseKind.STORED_REFUSAL: ChargeRule(ChargeAction.NEXT_KEY),
    ResponseKind.DECLINED: ChargeRule(ChargeAction.RETRIEVE),
    ResponseKind.PAYMENT_METHOD_REFUSED: ChargeRule(ChargeAction.DECLINE),
    ResponseKind.AMOUNT_REFUSED: ChargeRule(ChargeAction.DECLINE),
    ResponseKind.UNEXPECTED_STATE: ChargeRule(ChargeAction.RETRIEVE),
    ResponseKind.OTHER_PARAMETERS: ChargeRule(ChargeAction.LOOK_UP, alarm=Cause.REQUEST_REFUSED),
    ResponseKind.API_KEY_REPLACED: ChargeRule(ChargeAction.RETRY),
    ResponseKind.ACCOUNT: ChargeRule(ChargeAction.RETRY, alarm=Cause.STRIPE_ACCOUNT),
    ResponseKind.NOT_FOUND: ChargeRule(ChargeAction.RETRY, alarm=Cause.STRIPE_ACCOUNT),
    ResponseKind.INVALID: ChargeRule(ChargeAction.REFUSE, alarm=Cause.REQUEST_REFUSED),
}
