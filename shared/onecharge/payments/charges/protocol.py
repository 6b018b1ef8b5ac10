"""The charge protocol: every decision about money, pure. No clock, no environment, no I/O.

    claim ─► ensure a PaymentIntent ─► decide by what it is ─┬─► confirm ─► finalize
             (22 hours old: look up all others)              ├─► cancel, then the next generation
                                                             └─► finalize, or wait

One order has one PaymentIntent, which Stripe lets succeed once, for ever. Its id is written down before it is
confirmed. docs/protocol.md says why each rule is as it is; tests/specification explores them all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Self

from onecharge.contract.events import OrderPlaced
from onecharge.contract.states import PaymentState
from onecharge.payments.time_bounds import LOOKUP_AGE_SECONDS, OVERDUE_SECONDS

AUTHENTICATION_REQUIRED = "authentication_required"
"""The code of a decline that says no more than that the customer has to act (Stripe documentation, "Decline codes")."""

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

    @classmethod
    def of(cls, order: OrderPlaced) -> Self:
        return cls(
            order_id=order.order_id,
            amount_minor=order.amount_minor,
            currency=order.currency,
            customer_id=order.customer_id,
            placed_at=int(order.placed_at.timestamp()),
        )

    def is_old(self, now: float) -> bool:
        """Whether Stripe may have forgotten this order's idempotency keys.

        It keeps them for 24 hours; the two in between are for the order's clock and for the worker's. No money rests on
        another clock.
        """
        return now - self.placed_at >= LOOKUP_AGE_SECONDS

    def create_key(self, generation: int) -> str:
        """The idempotency key under which the PaymentIntent of this generation is created."""
        return f"order:{self.order_id}:{generation}"


@dataclass(frozen=True, kw_only=True)
class Payment:
    """One row of the Payments table: one order, one PaymentIntent, the present attempt to confirm it."""

    request: FrozenRequest
    attempt: int
    payment_method: str
    """Of the present attempt."""
    state: PaymentState
    generation: int = 0
    """Of the PaymentIntent that is written down, or the next one to be created; 0, and one more after each cancel."""
    payment_intent_id: str | None = None
    cancel_requested_at: int | None = None
    """Since then, whoever holds the row cancels and never confirms."""
    declined_charge_id: str | None = None
    """The PaymentIntent's latest charge when an attempt was last declined, or was to be authenticated."""
    lease_owner: str | None = None
    lease_expires_at: int = 0
    revision: int = 0
    """Grows with every write."""
    claimed_at: int = 0
    """When the row was last claimed, for whichever attempt."""
    attempt_claimed_at: int = 0
    """When the present attempt was first claimed; however often it is tried again, it is unfinished since then."""
    finalized_at: int | None = None
    last_emitted_at: int | None = None
    refused_at: int | None = None
    """Since when Stripe refuses the request as invalid, which no retry mends."""
    amount_refunded_minor: int = 0
    correlation_id: str = ""

    def is_overdue(self, now: float) -> bool:
        """Whether the attempt, or a cancellation that was requested later, is unfinished for so long that a person has
        to see it.
        """
        return now - max(self.attempt_claimed_at, self.cancel_requested_at or 0) >= OVERDUE_SECONDS

    @property
    def confirm_key(self) -> str:
        """The one idempotency key of this attempt and PaymentIntent."""
        return f"order:{self.request.order_id}:{self.attempt}:{self.payment_intent_id}"


# ---------------------------------------------------------------- what Stripe shows


@dataclass(frozen=True)
class FoundIntent:
    """A PaymentIntent as Stripe shows it."""

    payment_intent_id: str
    status: str
    amount_minor: int
    currency: str
    generation: int = 0
    customer_id: str = ""
    placed_at: int | None = None
    """Of the order, as the metadata say; None for one that is not ours."""
    payment_method: str | None = None
    cancellation_reason: str | None = None
    latest_charge: str | None = None
    error_code: str | None = None
    """Of `last_payment_error`: Stripe's decline code, or its error code; None if no confirm has failed."""
    advice_code: str | None = None
    client_secret: str | None = field(default=None, repr=False)

    @property
    def is_open(self) -> bool:
        """Whether it can still be confirmed, and so has to be canceled before another one is."""
        return self.status in ("requires_payment_method", "requires_confirmation", "requires_action")

    @property
    def requires_action(self) -> bool:
        """Whether it waits for its customer to authenticate."""
        asks_again = self.status == "requires_payment_method" and self.error_code == AUTHENTICATION_REQUIRED
        return self.status == "requires_action" or asks_again

    @property
    def is_canceled_by_customer(self) -> bool:
        """The trace of a cancellation, which outlives the table."""
        return self.status == "canceled" and self.cancellation_reason == CancelReason.BY_CUSTOMER


class CancelReason(StrEnum):
    """Stripe's `cancellation_reason`."""

    BY_CUSTOMER = "requested_by_customer"
    ABANDONED = "abandoned"


# ---------------------------------------------------------------- what follows


@dataclass(frozen=True)
class Finalize:
    """Write the attempt's last state; REQUIRES_ACTION is the customer's turn."""

    state: PaymentState
    payment_intent_id: str | None = None
    generation: int | None = None
    code: str | None = None
    """Stripe's decline code or error code; or why a person has to look."""
    advice_code: str | None = None
    declined_charge_id: str | None = None
    stripe_message: str | None = field(default=None, repr=False)
    stripe_request_id: str | None = None


@dataclass(frozen=True)
class Confirm:
    """Confirm the PaymentIntent that is written down, with the attempt's payment method."""


@dataclass(frozen=True)
class Cancel:
    """Cancel the PaymentIntent, and decide by what it is then: Stripe decides the race."""

    reason: CancelReason


@dataclass(frozen=True)
class Create:
    """Create the PaymentIntent of this generation."""

    generation: int


@dataclass(frozen=True)
class CancelFound:
    """Cancel what a lookup has found, as abandoned: what is merely found is never confirmed."""

    payment_intent_ids: tuple[str, ...]


@dataclass(frozen=True)
class Wait:
    """Stripe is processing it: never a next generation beside it."""


class Confirmed(Enum):
    """What is known of the present attempt's confirm, from this invocation."""

    NO = auto()
    """It was not sent, or its answer says nothing: sent under its one key, it is answered once, or again."""
    UNKNOWN = auto()
    """It may have been sent, and whoever asks cannot send it."""
    ANSWERED = auto()
    """Stripe has answered it, now or in a replay: what the PaymentIntent shows is this attempt's."""
    SPENT = auto()
    """Its one key answers with a stored failure for ever: nothing is known, and it cannot be sent again."""


def decide(
    payment: Payment, intent: FoundIntent, *, confirmed: Confirmed = Confirmed.NO
) -> Finalize | Confirm | Cancel | Create | Wait:
    """What to do with the PaymentIntent of a claimed row, by what it is."""
    if _is_other_money(payment.request, intent):
        return _review(intent, "amount or currency differs from the frozen request")
    its_action = confirmed is Confirmed.ANSWERED or intent.payment_method in (None, payment.payment_method)
    match intent.status:
        case "succeeded":
            return _finalize(PaymentState.SUCCEEDED, intent)
        case "canceled" if intent.is_canceled_by_customer:
            return _finalize(PaymentState.CANCELED, intent)
        case "canceled":
            # Never one more than Stripe's answers lead to: all workers have to come to the same keys.
            return Create(max(payment.generation, intent.generation + 1))
        case "processing":
            return Wait()
        case status if not intent.is_open:
            return _review(intent, f"unexpected status {status}")
        case _ if payment.cancel_requested_at is not None:
            return Cancel(CancelReason.BY_CUSTOMER)
        case "requires_action":
            return _finalize(PaymentState.REQUIRES_ACTION, intent) if its_action else Cancel(CancelReason.ABANDONED)
        case "requires_payment_method" if intent.error_code and is_decline_of(payment, intent, confirmed):
            state = PaymentState.REQUIRES_ACTION if intent.requires_action else PaymentState.DECLINED
            return _finalize(state, intent)
        case _:
            return Confirm() if confirmed is Confirmed.NO else Cancel(CancelReason.ABANDONED)


def is_decline_of(payment: Payment, intent: FoundIntent, confirmed: Confirmed) -> bool:
    """Whether the decline that the PaymentIntent shows is the present attempt's.

    Whoever can confirm asks under the attempt's one key, which replays what it was answered: a page that is still open
    may have tried another card, and a row that was lost or restored does not know of the attempts before. Where that
    is no way, by the charge, and not by the payment method: the same card may be tried again, and test methods are
    shown under other ids.
    """
    if confirmed in (Confirmed.NO, Confirmed.ANSWERED):
        return confirmed is Confirmed.ANSWERED
    return intent.latest_charge != payment.declined_charge_id


def decide_after_lookup(
    payment: Payment, own: FoundIntent | None, others: Sequence[FoundIntent]
) -> Finalize | CancelFound | Wait | None:
    """What follows from everything else of the order, before `own` is written down; None: there is nothing else.

    Of two workers that each look up after their own PaymentIntent exists, the later one sees both. So whatever was
    forgotten or restored, only one of them is left that can be confirmed.

    Args:
        others: complete, or LookupInconclusive would have been raised.
    """
    succeeded = [intent for intent in (*others, *([own] if own else ())) if intent.status == "succeeded"]
    still_open = tuple(intent.payment_intent_id for intent in others if intent.is_open)
    canceled = [intent for intent in others if intent.is_canceled_by_customer]
    if len(succeeded) > 1:
        return _review(succeeded[0], "several PaymentIntents of the order succeeded")
    if succeeded:
        is_other = _is_other_money(payment.request, succeeded[0])
        return _review(succeeded[0], "other money") if is_other else _finalize(PaymentState.SUCCEEDED, succeeded[0])
    if any(intent.status not in ("canceled", "processing") and not intent.is_open for intent in others):
        return Finalize(PaymentState.NEEDS_REVIEW, code="a PaymentIntent of an unexpected status")
    if any(intent.status == "processing" for intent in others):
        return Wait()
    if still_open:
        return CancelFound(still_open)
    return _finalize(PaymentState.CANCELED, canceled[0]) if canceled else None


def _finalize(state: PaymentState, intent: FoundIntent) -> Finalize:
    declined = state is PaymentState.DECLINED
    # Also of an attempt that waits: a later one takes it over, and must not take its failed charge for its own.
    open_for_another = declined or state is PaymentState.REQUIRES_ACTION
    return Finalize(
        state,
        payment_intent_id=intent.payment_intent_id,
        generation=intent.generation,
        code=intent.error_code if declined else None,
        advice_code=intent.advice_code if declined else None,
        declined_charge_id=intent.latest_charge if open_for_another else None,
    )


def _review(intent: FoundIntent, why: str) -> Finalize:
    return Finalize(PaymentState.NEEDS_REVIEW, intent.payment_intent_id, intent.generation, code=why)


def _is_other_money(request: FrozenRequest, intent: FoundIntent) -> bool:
    return (intent.amount_minor, intent.currency) != (request.amount_minor, request.currency)


# ---------------------------------------------------------------- what Stripe says unasked


class Discrepancy(StrEnum):
    """How a PaymentIntent that an event or the reconciler names differs from the row of its order."""

    NONE = "row and Stripe agree, or a worker will see to it"
    LOST_ROW = "a charge of which there is no row: the row is written anew"
    PAID = "the PaymentIntent succeeded: the row becomes SUCCEEDED"
    PAID_LATE = "it succeeded after the attempt was declined: the row becomes SUCCEEDED"
    PAID_TWICE = "another PaymentIntent of the same order succeeded as well"
    PAID_AFTER_CANCEL = "it succeeded although the order is canceled: it is refunded"
    OTHER_MONEY = "it succeeded with another amount or currency than was frozen"
    DECLINED = "the customer's bank declined: the row becomes DECLINED"
    EXPIRED = "nobody acted in time: it is canceled, then the row becomes DECLINED"
    CANCELED = "it was canceled for the customer: the row becomes CANCELED"
    REVERSED = "the row says SUCCEEDED, and its PaymentIntent does not"


def find_discrepancy(
    payment: Payment | None, intent: FoundIntent, *, now: float, requires_action_seconds: int
) -> Discrepancy:
    """Compare: what Stripe says later wins, except that SUCCEEDED is never overwritten. Nothing is confirmed here."""
    is_paid = intent.status == "succeeded"
    if payment is None:
        return Discrepancy.LOST_ROW if is_paid else Discrepancy.NONE
    if is_paid:
        return _of_a_success(payment, intent, now)
    is_own = intent.payment_intent_id == payment.payment_intent_id
    if is_own and payment.state is PaymentState.SUCCEEDED:
        return Discrepancy.REVERSED
    if is_own and payment.state is PaymentState.REQUIRES_ACTION:
        expired = now - (payment.finalized_at or payment.claimed_at) >= requires_action_seconds
        return _of_a_wait(intent, expired=expired)
    return Discrepancy.NONE


def _of_a_success(payment: Payment, intent: FoundIntent, now: float) -> Discrepancy:
    is_own = intent.payment_intent_id == payment.payment_intent_id
    if is_own and payment.state is PaymentState.PENDING and now < payment.lease_expires_at:
        # Its holder finds out without help; if it crashes, its message comes back.
        return Discrepancy.NONE
    if payment.state is PaymentState.SUCCEEDED:
        return Discrepancy.NONE if is_own else Discrepancy.PAID_TWICE
    if payment.state is PaymentState.CANCELED:
        return Discrepancy.PAID_AFTER_CANCEL
    if _is_other_money(payment.request, intent):
        return Discrepancy.NONE if payment.state is PaymentState.NEEDS_REVIEW else Discrepancy.OTHER_MONEY
    return Discrepancy.PAID_LATE if payment.state is PaymentState.DECLINED else Discrepancy.PAID


def _of_a_wait(intent: FoundIntent, *, expired: bool) -> Discrepancy:
    if intent.is_canceled_by_customer:
        return Discrepancy.CANCELED
    if intent.status == "canceled":
        return Discrepancy.DECLINED
    if intent.requires_action:
        return Discrepancy.EXPIRED if expired else Discrepancy.NONE
    return Discrepancy.DECLINED if intent.status == "requires_payment_method" else Discrepancy.NONE
