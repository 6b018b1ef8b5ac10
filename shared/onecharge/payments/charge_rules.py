"""The charge protocol: every decision about a charge, pure. No clock, no environment, no I/O.

    claim ─► ensure a PaymentIntent ─► decide by its status ─┬─► confirm ─► finalize
             (22 hours old: look up all others)              ├─► cancel, then the next generation
                                                             └─► finalize, or wait

One order has one PaymentIntent, which Stripe lets succeed at most once. Its id is written to the row before it is
confirmed. docs/protocol.md gives the reason for each rule; lab/specification explores them all.

    generation   the number of the order's PaymentIntent: 0, and one more after each that was canceled, or whose create
                 cannot be sent again under its key (a stored failure, other parameters)
    ended        of an attempt: no worker has anything to do now. Every state but PENDING; REQUIRES_ACTION waits for the
                 customer, and Stripe's later word may still change each of them
    closed       of an order: no attempt follows. CLOSED_STATES; the others, UNPAID_STATES, can still be charged
    unfinished   of a row: PENDING, REQUIRES_ACTION, or a cancellation is requested. The reconciler visits it
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from typing import ClassVar, Self

from onecharge.contract.events import DO_NOT_TRY_AGAIN, NO_ATTEMPT_LEFT, OrderPlaced
from onecharge.contract.states import PaymentState
from onecharge.payments.after_charge import REVIEW, AfterCharge, Disputes, new_requests
from onecharge.payments.time_bounds import LOOKUP_AGE_SECONDS, OVERDUE_SECONDS
from onecharge.runtime.alarms import Cause

UNPAID_STATES = (PaymentState.PENDING, PaymentState.REQUIRES_ACTION, PaymentState.DECLINED)
"""The payment can still be charged, and still be canceled."""

CLOSED_STATES = (PaymentState.SUCCEEDED, PaymentState.CANCELED, PaymentState.NEEDS_REVIEW)
"""No attempt follows: none claims the row any more."""

GROUPED_TERMS = 2
"""From these terms on a PaymentIntent has its order in `transfer_group`, and what else stripe_gateway.py says."""

_BY_STRIPE = ("automatic", "expired", "failed_invoice", "void_invoice")
"""The reasons with which Stripe cancels by itself (API reference, "PaymentIntent", `cancellation_reason`)."""

OTHER_MONEY = "amount or currency differs from the frozen request"
SEVERAL_SUCCEEDED = "several PaymentIntents of the order succeeded"
"""Reasons of NEEDS_REVIEW with which a customer may have paid too much."""

# ---------------------------------------------------------------- what is stored


@dataclass(frozen=True)
class FrozenRequest:
    """What is charged, frozen by the first claim: no later message or deploy changes it. `placed_at` is the order's."""

    order_id: str
    amount_minor: int
    currency: str
    customer_id: str
    placed_at: int
    """Epoch seconds."""
    terms_version: int = field(default=1, compare=False)
    """The deployment's at the first claim: no later one changes the parameters of a key that is in use."""

    @classmethod
    def of(cls, order: OrderPlaced, *, terms_version: int = 1) -> Self:
        placed_at = int(order.placed_at.timestamp())
        return cls(order.order_id, order.amount_minor, order.currency, order.customer_id, placed_at, terms_version)

    def is_old(self, now: float) -> bool:
        """Whether Stripe may have removed this order's idempotency keys.

        Stripe keeps them for 24 hours. We stop relying on them at 22: one hour of error for each of two clocks, the one
        that set `placed_at` and the worker's. Safety depends on clocks only here, and in a lookup's margins.
        """
        return now - self.placed_at >= LOOKUP_AGE_SECONDS

    def create_key(self, generation: int) -> str:
        """The idempotency key under which the PaymentIntent of this generation is created."""
        return f"order:{self.order_id}:{generation}"


@dataclass(frozen=True, kw_only=True)
class Payment:
    """One row of the Payments table: one order, one PaymentIntent, the current attempt to confirm it."""

    subject: ClassVar[str] = "Payment"

    request: FrozenRequest
    attempt: int
    payment_method: str
    """Of the current attempt."""
    state: PaymentState
    generation: int = 0
    """Of `payment_intent_id`, or of the PaymentIntent to create next."""
    payment_intent_id: str | None = None
    cancel_requested_at: int | None = None
    """Every later claim cancels and never confirms. The present owner may still confirm: Stripe decides that race."""
    accepted_cancellations: tuple[str, ...] = ()
    """PaymentIntents that a person canceled at Stripe, and after which another person's `retry` goes on."""
    declined_charge_id: str | None = None
    """The PaymentIntent's latest charge when an attempt last ended as DECLINED or REQUIRES_ACTION."""
    refused_cards: tuple[str, ...] = ()
    """Fingerprints of the cards that are not to be tried again."""
    lease_owner: str | None = None
    lease_expires_at: int = 0
    revision: int = 0
    """Grows with every write."""
    claimed_at: int = 0
    """When the row was last claimed, for whichever attempt."""
    attempt_claimed_at: int = 0
    """When the current attempt was first claimed: retries do not change it."""
    finalized_at: int | None = None
    last_emitted_at: int | None = None
    refused_at: int | None = None
    """Since when Stripe refuses the request as invalid: a permanent failure."""
    decline_code: str | None = None
    """Finalize.code of its last final state: of NEEDS_REVIEW, the reason."""
    amount_refunded_minor: int = 0
    disputes: Disputes = field(default_factory=dict)
    fraud_suspicion: str | None = None
    correlation_id: str = ""
    key_was_misused: bool = False
    """Never stored: in this delivery a key of the order turned out to have created a PaymentIntent with other
    parameters, which only a lookup finds."""

    @property
    def key(self) -> dict[str, str]:
        """The row's key attributes."""
        return {"order_id": self.request.order_id}

    @property
    def amount_minor(self) -> int:
        return self.request.amount_minor

    @property
    def currency(self) -> str:
        return self.request.currency

    @property
    def after_charge(self) -> AfterCharge:
        """What the row knows of what followed the charge."""
        return AfterCharge(self.amount_refunded_minor, self.disputes, self.fraud_suspicion)

    @property
    def log_fields(self) -> dict[str, object]:
        """What every log line about the row carries."""
        return {
            "order_id": self.request.order_id,
            "attempt": self.attempt,
            "correlation_id": self.correlation_id,
            "payment_intent_id": self.payment_intent_id,
        }

    def is_overdue(self, now: float) -> bool:
        """Whether the attempt, or a cancellation requested later, is unfinished for so long that it is an alarm."""
        return now - max(self.attempt_claimed_at, self.cancel_requested_at or 0) >= OVERDUE_SECONDS

    def is_of(self, payment_intent_id: str | None) -> bool:
        """Whether the PaymentIntent of this id is the row's own."""
        return self.payment_intent_id == payment_intent_id

    def refused_cards_with(self, intent: "StripeIntent") -> tuple[str, ...]:
        """The cards that are not to be tried again, with the one of the decline that the PaymentIntent shows."""
        cards = self.refused_cards if intent.refused_card is None else (*self.refused_cards, intent.refused_card)
        return tuple(dict.fromkeys(cards))

    @property
    def confirm_key(self) -> str:
        """The one idempotency key of this attempt and PaymentIntent."""
        return f"order:{self.request.order_id}:{self.attempt}:{self.payment_intent_id}"


# ---------------------------------------------------------------- what Stripe shows


@dataclass(frozen=True)
class StripeIntent:
    """A PaymentIntent, as Stripe shows it."""

    payment_intent_id: str
    status: str
    amount_minor: int
    currency: str
    generation: int = 0
    order_id: str | None = None
    customer_id: str = ""
    placed_at: int | None = None
    """The order's, from the metadata, as its id is; None for a PaymentIntent that is not ours."""
    payment_method: str | None = None
    takes_cards: bool = True
    """False: card payments are not active for the account, and Stripe has filtered them out silently."""
    cancellation_reason: str | None = None
    latest_charge: str | None = None
    review: str | None = None
    """The id of its review, which may be closed (Stripe API reference, "The PaymentIntent object", `review`)."""
    error_code: str | None = None
    """Of `last_payment_error`: Stripe's decline code, or its error code. If an update has cleared it, of the latest
    charge. None if neither says that a confirm has failed."""
    advice_code: str | None = None
    refused_card: str | None = None
    """The card's fingerprint, if its issuer advised not to try it again."""
    client_secret: str | None = field(default=None, repr=False)
    after_charge: AfterCharge | None = None
    """What was read beside it, if it succeeded before this row knew of it: the row was lost."""

    @property
    def is_open(self) -> bool:
        """Whether it can still be confirmed: it has to be canceled before another one is created."""
        return self.status in ("requires_payment_method", "requires_confirmation", "requires_action")

    @property
    def is_canceled_by_customer(self) -> bool:
        """Whether the order was canceled: Stripe keeps this."""
        return self.status == "canceled" and self.cancellation_reason == CancelReason.BY_CUSTOMER

    @property
    def is_canceled_by_hand(self) -> bool:
        """Whether a person canceled it, as fraudulent, say: neither we nor Stripe itself."""
        return self.status == "canceled" and self.cancellation_reason not in (*CancelReason, *_BY_STRIPE)

    @property
    def is_refunded_in_full(self) -> bool:
        """Whether its customer has all of the money back, as far as that was read."""
        return self.after_charge is not None and self.after_charge.amount_refunded_minor >= self.amount_minor

    @property
    def decline_code(self) -> str | None:
        """NO_ATTEMPT_LEFT if Stripe itself canceled it after a decline, as it does if it is confirmed too often."""
        is_by_stripe = self.status == "canceled" and self.cancellation_reason in _BY_STRIPE
        return NO_ATTEMPT_LEFT if is_by_stripe and self.error_code is not None else self.error_code

    def money_differs_from(self, request: FrozenRequest) -> bool:
        """Whether it takes another amount or currency than was frozen. One that is canceled takes none."""
        is_other = (self.amount_minor, self.currency) != (request.amount_minor, request.currency)
        return is_other and self.status != "canceled"


class CancelReason(StrEnum):
    """The reasons with which we cancel: Stripe's `cancellation_reason`."""

    BY_CUSTOMER = "requested_by_customer"
    ABANDONED = "abandoned"


# ---------------------------------------------------------------- what follows


@dataclass(frozen=True)
class Finalize:
    """Write the attempt's final state; REQUIRES_ACTION waits for the customer."""

    state: PaymentState
    payment_intent_id: str | None = None
    generation: int | None = None
    code: str | None = None
    """Stripe's decline code or error code; of NEEDS_REVIEW, the reason."""
    advice_code: str | None = None
    declined_charge_id: str | None = None
    refused_cards: tuple[str, ...] = ()
    stripe_message: str | None = field(default=None, repr=False)
    stripe_request_id: str | None = None
    after_charge: AfterCharge | None = None
    fraud_suspicion: str | None = None
    """REVIEW if Stripe opened a review with the charge, which was made just now; otherwise `after_charge` says it."""

    @property
    def alarm(self) -> Cause | None:
        """Why a person has to see it, if so."""
        if self.after_charge and new_requests({}, self.after_charge.disputes):
            return Cause.CHARGE_DISPUTED
        if self.fraud_suspicion or (self.after_charge and self.after_charge.fraud_suspicion):
            return Cause.FRAUD_SUSPECTED
        if self.state is not PaymentState.NEEDS_REVIEW:
            return None
        return Cause.MONEY_DIFFERS if self.code in (OTHER_MONEY, SEVERAL_SUCCEEDED) else Cause.NEEDS_REVIEW


@dataclass(frozen=True)
class Confirm:
    """Confirm the row's PaymentIntent with the attempt's payment method."""


@dataclass(frozen=True)
class Cancel:
    """Cancel the PaymentIntent, then decide by its final status: Stripe decides the race with a confirm."""

    reason: CancelReason
    payment_intent_id: str


@dataclass(frozen=True)
class Create:
    """Create the PaymentIntent of this generation."""

    generation: int


@dataclass(frozen=True)
class CancelFound:
    """Cancel what a lookup has found, as abandoned: a PaymentIntent that was only found is never confirmed."""

    payment_intent_ids: tuple[str, ...]


@dataclass(frozen=True)
class Wait:
    """Stripe is processing it: no next generation is created beside it."""


class ConfirmResult(Enum):
    """What this invocation knows of the result of the current attempt's confirm."""

    UNKNOWN = auto()
    """It was not sent, or Stripe's answer was lost: sending it (again) under its one key is idempotent."""
    OF_ANOTHER_WORKER = auto()
    """Another worker may have sent it, and the caller must not send it: the reconciler."""
    KNOWN = auto()
    """Stripe has answered it, now or as a replay: what the PaymentIntent shows is this attempt's result."""
    KEY_SPENT = auto()
    """Its one key replays a failure or a refusal: this confirm cannot be sent again, and the PaymentIntent
    may show the result of another one."""
    KEY_MISUSED = auto()
    """Its one key belongs to another confirm, with another card: this one was not executed, and cannot be sent."""


type Decision = Finalize | Confirm | Cancel | Create | Wait


def decide(
    payment: Payment, intent: StripeIntent | None, confirm_result: ConfirmResult = ConfirmResult.UNKNOWN
) -> Decision:
    """What to do next with a claimed row, by the status of its PaymentIntent (None: the row has none)."""
    if intent is None:
        return Create(payment.generation)
    if intent.money_differs_from(payment.request):
        return _review(intent, OTHER_MONEY)
    # Whether the 3-D Secure challenge that the PaymentIntent may wait for is this attempt's.
    is_own_action = confirm_result is ConfirmResult.KNOWN or intent.payment_method in (None, payment.payment_method)
    abandon = Cancel(CancelReason.ABANDONED, intent.payment_intent_id)
    match intent.status:
        case "succeeded":
            return final_of(PaymentState.SUCCEEDED, intent, payment)
        case "canceled" if intent.is_canceled_by_customer:
            return final_of(PaymentState.CANCELED, intent, payment)
        case "canceled" if is_stopped_by_hand(payment, intent):
            return review_of_stopped(intent)
        case "canceled" if intent.decline_code == NO_ATTEMPT_LEFT and payment.cancel_requested_at is None:
            # The next generation would evade Stripe's limit on attempts, which it sets against card testing.
            return final_of(PaymentState.DECLINED, intent, payment)
        case "canceled":
            # Not simply one more: every worker has to arrive at the same generation, and so at the same key.
            return Create(max(payment.generation, intent.generation + 1))
        case "processing":
            return Wait()
        case status if not intent.is_open:
            return _review(intent, f"unexpected status {status}")
        case _ if payment.cancel_requested_at is not None:
            return Cancel(CancelReason.BY_CUSTOMER, intent.payment_intent_id)
        case "requires_action":
            return final_of(PaymentState.REQUIRES_ACTION, intent, payment) if is_own_action else abandon
        case "requires_payment_method" if intent.error_code and is_decline_of(payment, intent, confirm_result):
            # Also for the code `authentication_required`: a page finishes nothing but requires_action.
            return final_of(PaymentState.DECLINED, intent, payment)
        case _:
            # Undecided: confirm. If the confirm cannot be sent (again), replace the PaymentIntent.
            return Confirm() if confirm_result is ConfirmResult.UNKNOWN else abandon


def is_stopped_by_hand(payment: Payment, intent: StripeIntent) -> bool:
    """Whether a person canceled this PaymentIntent at Stripe, as fraudulent, say, and nobody has decided to go on: by
    `retry`, which names those that it accepts as canceled, or by a cancellation, after which nothing is charged."""
    is_accepted = intent.payment_intent_id in payment.accepted_cancellations
    return intent.is_canceled_by_hand and not is_accepted and payment.cancel_requested_at is None


def is_decline_of(payment: Payment, intent: StripeIntent, confirm_result: ConfirmResult) -> bool:
    """Whether the decline that the PaymentIntent shows belongs to the current attempt.

    A worker that can confirm finds out by confirming: the attempt's one key replays its own answer. The PaymentIntent
    alone does not say it: a page that is still open may have tried another card, and a row that was lost or restored
    does not know earlier attempts. A caller that cannot confirm compares the charge, not the payment method: the same
    card may be tried again, and Stripe shows test payment methods under other ids.
    """
    if confirm_result in (ConfirmResult.UNKNOWN, ConfirmResult.KNOWN, ConfirmResult.KEY_MISUSED):
        return confirm_result is ConfirmResult.KNOWN
    if payment.attempt > 1 and payment.declined_charge_id is None:
        # The row was lost, or is an older version of itself: it does not know which charge earlier attempts made.
        return False
    return intent.latest_charge != payment.declined_charge_id


def decide_after_lookup(
    payment: Payment, own: StripeIntent | None, others: Sequence[StripeIntent]
) -> Finalize | CancelFound | Wait | None:
    """What follows from the order's other PaymentIntents, before the id of `own` is written; None: nothing does.

    Two workers look up after their own PaymentIntents exist: the later one sees both. So only one PaymentIntent is left
    that can be confirmed, even if keys expired or rows were restored. `others` are all others.
    """
    succeeded = [intent for intent in (*others, *([own] if own else ())) if intent.status == "succeeded"]
    still_open = tuple(intent.payment_intent_id for intent in others if intent.is_open)
    canceled = [intent for intent in others if intent.is_canceled_by_customer]
    if len(succeeded) > 1:
        return _review(succeeded[0], SEVERAL_SUCCEEDED)
    if succeeded:
        is_other = succeeded[0].money_differs_from(payment.request)
        return (
            _review(succeeded[0], OTHER_MONEY) if is_other else final_of(PaymentState.SUCCEEDED, succeeded[0], payment)
        )
    if any(intent.status not in ("canceled", "processing") and not intent.is_open for intent in others):
        return Finalize(PaymentState.NEEDS_REVIEW, code="a PaymentIntent of an unexpected status")
    if any(intent.status == "processing" for intent in others):
        return Wait()
    if still_open:
        return CancelFound(still_open)
    if canceled:
        return final_of(PaymentState.CANCELED, canceled[0], payment)
    stopped = [intent for intent in others if is_stopped_by_hand(payment, intent)]
    return review_of_stopped(stopped[0]) if stopped else None


def decline_of_refused_card(payment: Payment, intent: StripeIntent) -> Finalize:
    """The end of an attempt without a confirm: the decline that the PaymentIntent shows is an earlier one."""
    final = final_of(PaymentState.DECLINED, intent, payment)
    return replace(final, code="refused_card", advice_code=DO_NOT_TRY_AGAIN)


def final_of(state: PaymentState, intent: StripeIntent, payment: Payment) -> Finalize:
    """What to finalize the row as, by its PaymentIntent."""
    declined, is_paid = state is PaymentState.DECLINED, state is PaymentState.SUCCEEDED
    return Finalize(
        state,
        payment_intent_id=intent.payment_intent_id,
        generation=intent.generation,
        code=intent.decline_code if declined else None,
        advice_code=intent.advice_code if declined else None,
        refused_cards=payment.refused_cards_with(intent) if declined else (),
        # Also for REQUIRES_ACTION: a later attempt takes the row over, and must not take the failed charge for its own.
        declined_charge_id=intent.latest_charge if state in UNPAID_STATES else None,
        after_charge=intent.after_charge if is_paid else None,
        # No further request for a fresh order. If it is closed by now, its event is read once more.
        fraud_suspicion=REVIEW if is_paid and intent.review and not intent.after_charge else None,
    )


def review_of_stopped(intent: StripeIntent) -> Finalize:
    """A person canceled the PaymentIntent at Stripe: a person decides whether the order is charged all the same."""
    return _review(intent, f"canceled at Stripe: {intent.cancellation_reason or 'no reason'}")


def _review(intent: StripeIntent, why: str) -> Finalize:
    return Finalize(PaymentState.NEEDS_REVIEW, intent.payment_intent_id, intent.generation, code=why)
