"""What Stripe answers: a PaymentIntent as Stripe shows it, or a failure, whose kind stripe_errors.py finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from onecharge.contract.money import is_returned
from onecharge.payments.disputes import Dispute
from onecharge.runtime.alarms import Cause


class Deferred(Exception):
    """Nothing more can be done now: the message or the event is delivered again, and the log says why.

    Args:
        alarm: why a person has to see it, if waiting does not help.
        kept: attributes to write to the row with it, such as Stripe's error message; None removes one.
    """

    def __init__(
        self, why: str, *, alarm: Cause | None = None, kept: Mapping[str, str | int | None] | None = None
    ) -> None:
        super().__init__(why)
        self.why, self.alarm, self.kept = why, alarm, kept or {}


@dataclass(frozen=True)
class StripeIntent:
    """A PaymentIntent, as Stripe shows it."""

    payment_intent_id: str
    status: str
    amount_minor: int
    currency: str
    shop: str = ""
    """The shop, order and customer in its metadata; empty or None for a PaymentIntent that is not ours."""
    order_id: str | None = None
    customer_id: str = ""
    is_described: bool = False
    """Whether the description names the same order: a person may have edited the metadata of another order's."""
    created: int = 0
    """Epoch seconds, by Stripe's clock."""
    takes_cards: bool = True
    """False: card payments are not active for the account, and Stripe has filtered them out silently."""
    cancellation_reason: str | None = None
    error_code: str | None = None
    """The decline or error code of the last error, or of the latest charge if an update cleared that error."""
    charged_at: int | None = None
    """When its latest charge was made, if it is expanded; epoch seconds."""
    amount_refunded_minor: int = 0
    is_disputed: bool = False
    dispute: Dispute | None = None
    """The dispute that counts, if it was read."""
    client_secret: str | None = field(default=None, repr=False)

    @property
    def is_open(self) -> bool:
        """Whether it can still be confirmed or canceled."""
        return self.status in ("requires_payment_method", "requires_confirmation", "requires_action")

    @property
    def is_returned(self) -> bool:
        """Whether refunds or a lost dispute have given all of the payment back."""
        return is_returned(self.amount_minor, self.amount_refunded_minor, self.dispute and self.dispute.status)

    def is_duplicate_of(self, money: tuple[int, str]) -> bool:
        """Whether `release` canceled it beside another one of this amount and currency, which may be charged."""
        return self.status == "canceled" and self.cancellation_reason == "duplicate" and self.money == money

    @property
    def money(self) -> tuple[int, str]:
        return self.amount_minor, self.currency


@dataclass(frozen=True)
class Failure:
    """A response other than the requested object."""

    kind: "ResponseKind"
    code: str | None = None
    """Stripe's decline code, or its error code."""
    message: str | None = None
    request_id: str | None = None

    @property
    def alarm(self) -> Cause | None:
        """Why a person has to see it, if waiting does not help."""
        return _ALARMS.get(self.kind)

    @property
    def deferred(self) -> Deferred:
        """What ends the work on a delivery or an event; the row keeps what Stripe said."""
        given = {"stripe_message": self.message, "stripe_request_id": self.request_id}
        return Deferred(self.kind, alarm=self.alarm, kept={name: value for name, value in given.items() if value})


@dataclass(frozen=True)
class Response:
    """A PaymentIntent, or why there is none."""

    intent: StripeIntent | None = None
    failure: Failure | None = None
    is_replay: bool = False
    """The stored response of an earlier request: it proves the object's id, not its current status."""

    def shown(self) -> StripeIntent:
        """The PaymentIntent. Raises Deferred if there is none."""
        if self.intent is None:
            raise (self.failure or Failure(ResponseKind.NO_ANSWER)).deferred
        return self.intent


class ResponseKind(StrEnum):
    """The kinds of response other than the requested object, replayed or not."""

    NO_ANSWER = "no answer: a time-out, a dropped connection, a proxy's page"
    OTHER_OBJECT = "an answer about another object: metadata that no create of ours has sent, or another id"
    RETRYABLE = "Stripe cannot do it now: 408, 409, 424, 429, 5xx, another 402, api_error, a PaymentIntent's limit"
    DECLINED = "402 card_error, or a payment method that is unknown, used up, restricted, or another customer's"
    AMOUNT_REFUSED = "an amount below Stripe's minimum or above its maximum, or a currency that it does not take"
    REFUND_REFUSED = "charge_already_refunded, charge_disputed, or more than is left to refund"
    BALANCE_TOO_LOW = "our balance is too low"
    UNEXPECTED_STATE = "400 payment_intent_unexpected_state"
    OTHER_PARAMETERS = "400 idempotency_error: the key was used with other parameters"
    ACCOUNT = "401, 403, wrong mode, account or cards not activated, its limits, its version, a rate limit in a 400"
    NOT_FOUND = "404 of the object itself"
    INVALID = "another 4xx"


# ---------------------------------------------------------------- which of them need a person

_ALARMS: Mapping[ResponseKind, Cause] = {
    ResponseKind.OTHER_OBJECT: Cause.STRIPE_INCONCLUSIVE,
    ResponseKind.ACCOUNT: Cause.STRIPE_ACCOUNT,
    # The API key may be another account's.
    ResponseKind.NOT_FOUND: Cause.STRIPE_ACCOUNT,
    ResponseKind.AMOUNT_REFUSED: Cause.REQUEST_REFUSED,
    ResponseKind.REFUND_REFUSED: Cause.REQUEST_REFUSED,
    ResponseKind.OTHER_PARAMETERS: Cause.REQUEST_REFUSED,
    ResponseKind.INVALID: Cause.REQUEST_REFUSED,
}
