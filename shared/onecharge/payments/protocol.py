"""The charge protocol: every decision about money, pure. No clock, no environment, no I/O.

    delivery ─► claim ─► next_step ─┬─ CHARGE ─► the answer ─► OUTCOMES ───────┬─► settle
                                    └─ LOOK ───► what is found ─► after_look ──┴─► or try again

docs/protocol.md says why each rule is as it is.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto

from onecharge.events import OrderPlaced
from onecharge.payments.time_bounds import (
    ABSENCE_GRACE_SECONDS,
    KEY_HORIZON_SECONDS,
)
from onecharge.states import PaymentState

# ---------------------------------------------------------------- the row


@dataclass(frozen=True)
class FrozenRequest:
    """What is sent to Stripe for one attempt, frozen by the first claim: no later delivery or deploy changes it.

    `parameters_json` is the very body of the request, so that a Stripe key never sees two different ones.
    """

    order_id: str
    attempt: int
    amount_minor: int
    currency: str
    parameters_json: str

    @classmethod
    def of(cls, order: OrderPlaced) -> "FrozenRequest":
        parameters = {
            "amount": order.amount_minor,
            "currency": order.currency.lower(),
            "payment_method": order.payment_method,
            "confirm": True,
            # Nobody is there to follow a redirect; 3-D Secure is finished by the customer's own page.
            "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
            "metadata": {
                "order_id": order.order_id,
                "attempt": str(order.attempt),
                "customer_id": order.customer_id,
            },
        }
        return cls(
            order_id=order.order_id,
            attempt=order.attempt,
            amount_minor=order.amount_minor,
            currency=order.currency,
            parameters_json=json.dumps(parameters, sort_keys=True, separators=(",", ":")),
        )

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.parameters_json.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class KeyedRow:
    """What the row of a charge and that of a refund have in common. Times are whole epoch seconds."""

    fencing_token: int
    """Grows with every claim; only the holder of the newest one can write."""
    lease_expires_at: int
    key_generation: int
    """0, and one more each time a look proved that the former key can no longer move money."""
    key_opened_at: int
    """No request was ever sent under the present key before this time."""
    looking_since: int | None
    """Since when the present key is not used any more until Stripe has been looked at; None while it may be."""

    @property
    def key_unused_since(self) -> int:
        """No request was sent under the present key after this time: the freshness rule forbids it, or a look."""
        horizon = self.key_opened_at + KEY_HORIZON_SECONDS
        return horizon if self.looking_since is None else min(self.looking_since, horizon)

    @property
    def appears_until(self) -> int:
        """Nothing that was sent under the present key appears at Stripe after this time."""
        return self.key_unused_since + ABSENCE_GRACE_SECONDS


@dataclass(frozen=True, kw_only=True)
class ChargeRow(KeyedRow):
    """One row of the Charges table, as a worker that claimed it holds it."""

    request: FrozenRequest
    state: PaymentState
    placed_at: int
    payment_intent_id: str | None = None
    """What Stripe calls the charge; None until the row is settled, or if Stripe never named one."""
    settled_at: int | None = None
    correlation_id: str = ""

    @property
    def idempotency_key(self) -> str:
        """The Stripe key of this order, attempt and generation: the same for every delivery."""
        return f"charge:{self.request.order_id}:{self.request.attempt}:{self.key_generation}"


# ---------------------------------------------------------------- may this attempt be made?


class Refusal(Enum):
    """Why an attempt after the first may not be claimed: only a decline makes room for another card."""

    NOT_YET = auto()
    """The attempt before it is not decided: it may still be declined."""
    NEVER = auto()
    """The order is paid, or canceled."""


def refusal_after(previous: PaymentState | None) -> Refusal:
    """What it means that the attempt before is in this state (None: unknown so far), and not DECLINED."""
    return Refusal.NEVER if previous in (PaymentState.SUCCEEDED, PaymentState.CANCELED) else Refusal.NOT_YET


# ---------------------------------------------------------------- charge or look?


class Step(Enum):
    """What a worker that has just claimed a row does next."""

    CHARGE = auto()
    LOOK = auto()


def next_step(row: KeyedRow, now: float) -> Step:
    """The freshness rule: the key is relied on only while Stripe is sure to remember its first use."""
    key_may_be_forgotten = now - row.key_opened_at >= KEY_HORIZON_SECONDS
    if row.looking_since is not None or key_may_be_forgotten:
        return Step.LOOK
    return Step.CHARGE


# ---------------------------------------------------------------- what an answer means


class Answer(StrEnum):
    """Everything that Stripe, or the network before it, can answer to a charge."""

    SUCCEEDED = "succeeded"
    DECLINED = "402 decline"
    REQUIRES_ACTION = "402 authentication_required, or requires_action"
    NO_ANSWER = "timeout or dropped connection"
    KEY_IN_USE = "409 idempotency_key_in_use"
    RATE_LIMITED = "429"
    UNAVAILABLE = "503"
    PROCESSING = "processing"
    SERVER_ERROR = "500"
    OTHER_REQUEST = "400 idempotency_error"
    OTHER_AMOUNT = "amount or currency differs from the frozen request"
    REFUSED = "any other 4xx"
    BAD_API_KEY = "401, 403"


class Then(Enum):
    """What becomes of the row and of the message."""

    SETTLE = auto()
    """The row is settled, the message is done."""
    SAME_KEY_AGAIN = auto()
    """Nothing is known: the row stays CLAIMED, and the message comes back to send the same key again."""
    LOOK_FIRST = auto()
    """The key will only ever repeat this answer: the row says so, and the message comes back to look."""


@dataclass(frozen=True)
class Outcome:
    """What one answer means; `state` says as what the row is settled, if it is."""

    then: Then
    state: PaymentState | None = None
    alarm: bool = False


_SAME_KEY_AGAIN = Outcome(Then.SAME_KEY_AGAIN)
_LOOK_FIRST = Outcome(Then.LOOK_FIRST)
_NEEDS_REVIEW = Outcome(Then.SETTLE, PaymentState.NEEDS_REVIEW, alarm=True)

OUTCOMES: Mapping[Answer, Outcome] = {
    Answer.SUCCEEDED: Outcome(Then.SETTLE, PaymentState.SUCCEEDED),
    Answer.DECLINED: Outcome(Then.SETTLE, PaymentState.DECLINED),
    Answer.REQUIRES_ACTION: Outcome(Then.SETTLE, PaymentState.REQUIRES_ACTION),
    Answer.NO_ANSWER: _SAME_KEY_AGAIN,
    Answer.KEY_IN_USE: _SAME_KEY_AGAIN,
    Answer.RATE_LIMITED: _SAME_KEY_AGAIN,
    Answer.UNAVAILABLE: _SAME_KEY_AGAIN,
    Answer.PROCESSING: _LOOK_FIRST,
    Answer.SERVER_ERROR: _LOOK_FIRST,
    Answer.OTHER_REQUEST: _NEEDS_REVIEW,
    Answer.OTHER_AMOUNT: _NEEDS_REVIEW,
    Answer.REFUSED: _NEEDS_REVIEW,
    # Nobody's fault but ours: no order is failed for it.
    Answer.BAD_API_KEY: Outcome(Then.SAME_KEY_AGAIN, alarm=True),
}
"""The outcome table. docs/protocol.md shows the same one, and a test holds the two against each other."""


AUTHENTICATION_REQUIRED = "authentication_required"
"""The code of a decline that says no more than that the customer has to act (Stripe documentation, "Decline codes")."""


@dataclass(frozen=True)
class Reply:
    """An answer with what it carries. `code` is Stripe's decline code, or its error code."""

    answer: Answer
    payment_intent_id: str | None = None
    code: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    """Of a PaymentIntent that waits for its customer: it lets the customer's page finish it, and nothing else."""


# ---------------------------------------------------------------- what a look means


@dataclass(frozen=True)
class FoundIntent:
    """A PaymentIntent that carries the order's id and attempt in its metadata."""

    payment_intent_id: str
    status: str
    amount_minor: int
    currency: str
    was_declined: bool = False
    decline_code: str | None = None
    client_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Settle:
    """Stripe shows what the attempt came to."""

    reply: Reply


@dataclass(frozen=True)
class Confirm:
    """A PaymentIntent of ours was made and never confirmed: its own states allow that once, for ever."""

    payment_intent_id: str


@dataclass(frozen=True)
class Cancel:
    """A PaymentIntent of ours was declined. Its customer may have been shown a page that could still confirm it, with
    another card: only once it is canceled is there room for another attempt. Then settle as what it is."""

    payment_intent_id: str


@dataclass(frozen=True)
class OpenNewKey:
    """There is no charge, and the former key can no longer make one: the next generation may."""


@dataclass(frozen=True)
class LookAgain:
    """Too early to tell."""


AfterLook = Settle | Confirm | Cancel | OpenNewKey | LookAgain


def reply_for(request: FrozenRequest, intent: FoundIntent) -> Reply:
    """What a PaymentIntent's status says of the attempt, and whether it is for the money that was agreed."""
    if (intent.amount_minor, intent.currency) != (request.amount_minor, request.currency):
        return Reply(Answer.OTHER_AMOUNT, intent.payment_intent_id)
    match intent.status:
        case "succeeded":
            return Reply(Answer.SUCCEEDED, intent.payment_intent_id)
        case "requires_action":
            return Reply(Answer.REQUIRES_ACTION, intent.payment_intent_id, client_secret=intent.client_secret)
        case "processing":
            return Reply(Answer.PROCESSING, intent.payment_intent_id)
        case "requires_payment_method" if intent.decline_code == AUTHENTICATION_REQUIRED:
            return Reply(Answer.REQUIRES_ACTION, intent.payment_intent_id, intent.decline_code, intent.client_secret)
        case "requires_payment_method" if intent.was_declined:
            return Reply(Answer.DECLINED, intent.payment_intent_id, intent.decline_code)
        case "canceled":
            return Reply(Answer.DECLINED, intent.payment_intent_id, intent.decline_code or intent.status)
        case _:
            return Reply(Answer.REFUSED, intent.payment_intent_id, f"status {intent.status}")


def after_look(row: ChargeRow, found: list[FoundIntent], now: float) -> AfterLook:
    """What follows from all PaymentIntents of this attempt that Stripe shows. Never guesses with money.

    `found` must be complete: an empty list is taken as proof that there was none at the time of the look.
    """
    match found:
        case []:
            # What was on its way when the key was last used has had its time to show.
            return OpenNewKey() if now >= row.appears_until else LookAgain()
        case [intent]:
            never_confirmed = intent.status == "requires_confirmation" or (
                intent.status == "requires_payment_method" and not intent.was_declined
            )
            reply = reply_for(row.request, intent)
            if never_confirmed and reply.answer is not Answer.OTHER_AMOUNT:
                return Confirm(intent.payment_intent_id)
            if intent.status != "canceled" and reply.answer is Answer.DECLINED:
                return Cancel(intent.payment_intent_id)
            return LookAgain() if reply.answer is Answer.PROCESSING else Settle(reply)
        case _:
            # Two PaymentIntents for one attempt should not exist: a person has to see them.
            return Settle(Reply(Answer.REFUSED, code="several PaymentIntents for one attempt"))


# ---------------------------------------------------------------- what Stripe tells unasked


class Compared(StrEnum):
    """What a PaymentIntent at Stripe means for the row of its attempt, whatever worker or message there still is."""

    AGREES = "nothing to do"
    ABANDONED = "take the row over and look; settle only what Stripe shows"
    PAID = "settle SUCCEEDED"
    FAILED = "cancel the PaymentIntent, then settle DECLINED"
    UNKNOWN_CHARGE = "alarm: a charge that no row knows"
    DIFFERS = "alarm: row and Stripe contradict each other"


def compare(row: ChargeRow | None, intent: FoundIntent, now: float) -> Compared:
    """Whether the row and Stripe say the same of an attempt, and what to do if they do not."""
    charged = intent.status == "succeeded"
    if row is None:
        return Compared.UNKNOWN_CHARGE if charged else Compared.AGREES
    other_money = charged and reply_for(row.request, intent).answer is Answer.OTHER_AMOUNT
    its_own = intent.payment_intent_id == row.payment_intent_id
    match row.state:
        case PaymentState.CLAIMED:
            # Whoever holds the lease finds out what Stripe knows without help.
            return Compared.ABANDONED if now >= row.lease_expires_at else Compared.AGREES
        case PaymentState.REQUIRES_ACTION if its_own and not other_money:
            return _decided_by_the_bank(row, intent)
        case PaymentState.SUCCEEDED if its_own:
            return Compared.AGREES if charged and not other_money else Compared.DIFFERS
        case PaymentState.NEEDS_REVIEW:
            # A person has it already.
            return Compared.AGREES
        case _:
            return Compared.DIFFERS if charged else Compared.AGREES


def _decided_by_the_bank(row: ChargeRow, intent: FoundIntent) -> Compared:
    match reply_for(row.request, intent).answer:
        case Answer.SUCCEEDED:
            return Compared.PAID
        case Answer.DECLINED:
            return Compared.FAILED
        case _:
            return Compared.AGREES
