"""Reconciles payment rows with Stripe, for webhooks and scheduled runs.

a webhook's or a listed event ─► handle_event ──┐  read the row's revision, then Stripe, then write on that revision
a row that is unfinished ──────► reconcile ─────┴─► find_discrepancy ─► write what Stripe says, cancel, or alarm

What Stripe says later wins: a success is written over DECLINED, whoever holds the row. Nothing is confirmed here, and
nothing is created but the trace of a cancellation that was requested.
"""

from collections.abc import Callable
from dataclasses import dataclass

from aws_lambda_powertools import Logger

from onecharge.contract.states import PaymentState
from onecharge.payments.charges.cancel import CancelPayment
from onecharge.payments.charges.gateway import PaymentIntentEvent, StripeGateway, StripeResponse
from onecharge.payments.charges.protocol import (
    CancelReason,
    Confirmed,
    Discrepancy,
    Finalize,
    FoundIntent,
    Payment,
    decide,
    find_discrepancy,
)
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.stripe_responses import RULES, ResponseKind
from onecharge.payments.time_bounds import TimeBounds

REQUIRES_ACTION_EXPIRED = "requires_action_expired"
"""The code of an attempt for which nobody has authenticated in time."""

UNATTENDED_SECONDS = 1800
"""A row that was claimed longer ago has nobody at work on it: a message backs off for 15 minutes at the most."""

_UNPAID = (PaymentState.PENDING, PaymentState.REQUIRES_ACTION, PaymentState.DECLINED)

RefundCanceledOrder = Callable[[Payment, FoundIntent], None]
"""Gives back what was charged although the order is canceled."""


class StripeUnavailable(Exception):
    """Stripe gave no answer that says anything: the event, or the row, is reconciled later."""

    def __init__(self, kind: ResponseKind) -> None:
        super().__init__(kind)
        self.kind = kind

    @property
    def needs_a_person(self) -> bool:
        """Whether it does not pass by itself, as with a key of another account."""
        return RULES[self.kind].alarm


class RowChanged(Exception):
    """Somebody has written the row since it was read: it is reconciled anew."""


@dataclass(frozen=True)
class Reconciler:
    """Reconciles through a store and Stripe; `clock` gives the time in epoch seconds.

    Every method is idempotent, and may raise what stops it halfway:
        StripeUnavailable: Stripe gave no answer.
        RowChanged: somebody else has written the row meanwhile.
        BotoCoreError, ClientError: DynamoDB gave none.
    """

    store: PaymentStore
    gateway: StripeGateway
    cancel: CancelPayment
    refund_canceled_order: RefundCanceledOrder
    requires_action_seconds: int
    """How long a customer may take to authenticate."""
    bounds: TimeBounds
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]

    def handle_event(self, event: PaymentIntentEvent) -> None:
        """Bring the row of the event's order to what Stripe shows by now.

        Late, duplicate and disordered events are harmless: an event is a snapshot, and so no more than a hint.
        """
        payment = self.store.read(event.order_id)
        if self._compare(payment, event.intent) is not Discrepancy.NONE:
            self._compare_with_stripe(event.order_id, payment, event.intent.payment_intent_id)

    def reconcile(self, payment: Payment) -> bool:
        """Finish what nobody else does. Returns whether the row is, or will be, finished without a person.

        Args:
            payment: an unfinished row, as it was read just now.
        """
        if payment.state not in _UNPAID:
            return True
        if payment.cancel_requested_at is not None:
            finished = self.cancel.finish(payment, deadline=self.bounds.deadline(self.clock()))
            return finished.state not in _UNPAID
        if payment.state is PaymentState.DECLINED or self._is_attended(payment):
            return True
        if payment.payment_intent_id is None:
            # Nothing can be charged, and only a message may create: the order service publishes it again.
            return False
        intent = self._retrieved(payment.payment_intent_id)
        if intent is None:
            self._report(payment.request.order_id, payment, "RowUnknownToStripe", "Stripe has no such PaymentIntent")
            return False
        return self._correct(payment.request.order_id, payment, intent) or self._finish_unattended(payment, intent)

    def _is_attended(self, payment: Payment) -> bool:
        """Whether a worker has the row, or a message will soon claim it again."""
        return payment.state is PaymentState.PENDING and self.clock() < max(
            payment.lease_expires_at, payment.claimed_at + UNATTENDED_SECONDS
        )

    def _finish_unattended(self, payment: Payment, intent: FoundIntent) -> bool:
        """Finalize a row that nobody works on, if Stripe has decided its attempt; returns whether it waits rightly."""
        if payment.state is not PaymentState.PENDING:
            return payment.state is PaymentState.REQUIRES_ACTION
        decision = decide(payment, intent, confirmed=Confirmed.UNKNOWN)
        if not isinstance(decision, Finalize):
            # It has to be confirmed, or canceled for the next generation: only a message's worker does that.
            return False
        self._write(payment, decision)
        if decision.state is PaymentState.NEEDS_REVIEW:
            why = str(decision.code)
            self._report(payment.request.order_id, payment, "UnattendedNeedsReview", why, intent)
        return True

    # ------------------------------------------------------------ one discrepancy

    def _compare_with_stripe(self, order_id: str, payment: Payment | None, payment_intent_id: str) -> None:
        intent = self._retrieved(payment_intent_id)
        if intent is not None:
            self._correct(order_id, payment, intent)
        elif payment is not None and payment.payment_intent_id == payment_intent_id:
            # The event and the row name it: it is our key that belongs to another account.
            raise StripeUnavailable(ResponseKind.NOT_FOUND)
        else:
            self._report(order_id, payment, "EventUnknownToStripe", "Stripe has no PaymentIntent as the event names")

    def _compare(self, payment: Payment | None, intent: FoundIntent) -> Discrepancy:
        return find_discrepancy(payment, intent, now=self.clock(), requires_action_seconds=self.requires_action_seconds)

    def _correct(self, order_id: str, payment: Payment | None, intent: FoundIntent) -> bool:
        """Act on the discrepancy; False if there is none."""
        discrepancy = self._compare(payment, intent)
        if discrepancy is Discrepancy.NONE:
            return False
        if payment is None:
            self._recover(order_id, intent)
            return True
        match discrepancy:
            case Discrepancy.PAID | Discrepancy.PAID_LATE:
                self._write(payment, _as(PaymentState.SUCCEEDED, intent))
                if discrepancy is Discrepancy.PAID_LATE:
                    self._report(order_id, payment, "PaidAfterDecline", discrepancy, intent)
            case Discrepancy.DECLINED | Discrepancy.EXPIRED if payment.cancel_requested_at is not None:
                # A declined row is not unfinished any more: it waits for `reconcile` to finish the cancellation.
                return False
            case Discrepancy.DECLINED:
                self._write(payment, _declined(intent))
            case Discrepancy.CANCELED:
                self._write(payment, _as(PaymentState.CANCELED, intent))
            case Discrepancy.EXPIRED:
                self._expire(order_id, payment, intent)
            case Discrepancy.PAID_AFTER_CANCEL:
                self._report(order_id, payment, "CanceledOrderCharged", discrepancy, intent)
                self.refund_canceled_order(payment, intent)
            case Discrepancy.OTHER_MONEY:
                self._write(payment, _as(PaymentState.NEEDS_REVIEW, intent, code="amount or currency differs"))
                self._report(order_id, payment, "OtherMoneyCharged", discrepancy, intent)
            case Discrepancy.PAID_TWICE:
                self._report(order_id, payment, "ChargedTwice", discrepancy, intent)
            case Discrepancy.REVERSED:
                self._report(order_id, payment, "RowDiffersFromStripe", discrepancy, intent)
        return True

    def _expire(self, order_id: str, payment: Payment, intent: FoundIntent) -> None:
        """Cancel it first: a customer's page could still confirm an open one. Stripe decides the race."""
        canceled = _intent_of(self.gateway.cancel(intent.payment_intent_id, CancelReason.ABANDONED))
        if canceled is None or canceled.is_open:
            raise StripeUnavailable(ResponseKind.NO_ANSWER)
        self._correct(order_id, payment, canceled)

    def _recover(self, order_id: str, intent: FoundIntent) -> None:
        """The row was lost, and the order is paid."""
        if intent.placed_at is None:
            self._report(order_id, None, "ChargeWithoutRow", Discrepancy.LOST_ROW, intent)
            return
        if not self.store.recover(order_id, intent, correlation_id="recovered", now=int(self.clock())):
            raise RowChanged
        self._report(order_id, None, "RowRecovered", Discrepancy.LOST_ROW, intent)

    def _write(self, payment: Payment, final: Finalize) -> None:
        if not self.store.finalize_unclaimed(payment, final, now=int(self.clock())):
            raise RowChanged
        self.count(f"Reconciled.{final.state}")
        self.logger.info(
            "finalized as Stripe shows it",
            extra={**_of(payment), "state": final.state, "payment_intent_id": final.payment_intent_id},
        )

    def _retrieved(self, payment_intent_id: str) -> FoundIntent | None:
        return _intent_of(self.gateway.retrieve(payment_intent_id))

    def _report(
        self, order_id: str, payment: Payment | None, metric: str, message: str, intent: FoundIntent | None = None
    ) -> None:
        """Raise an alarm: what should not happen did, or no rule can mend it."""
        self.count(metric)
        self.count("Alarm")
        about = {"payment_intent_id": intent.payment_intent_id, "status_at_stripe": intent.status} if intent else {}
        self.logger.error(message, extra={"order_id": order_id, **(_of(payment) if payment else {}), **about})


def _as(state: PaymentState, intent: FoundIntent, *, code: str | None = None) -> Finalize:
    return Finalize(
        state,
        intent.payment_intent_id,
        intent.generation,
        code=code,
        declined_charge_id=intent.latest_charge if state is PaymentState.DECLINED else None,
    )


def _declined(intent: FoundIntent) -> Finalize:
    # Of a row that requires action, only its expiry cancels as abandoned, whoever notices it first.
    expired = intent.cancellation_reason == CancelReason.ABANDONED
    return Finalize(
        PaymentState.DECLINED,
        intent.payment_intent_id,
        intent.generation,
        code=REQUIRES_ACTION_EXPIRED if expired else intent.error_code or intent.status,
        advice_code=intent.advice_code,
        declined_charge_id=intent.latest_charge,
    )


def _intent_of(response: StripeResponse) -> FoundIntent | None:
    """None if this Stripe account has none of that id. Raises StripeUnavailable."""
    if response.failure is None:
        return response.intent
    if response.failure.kind is ResponseKind.NOT_FOUND:
        return None
    raise StripeUnavailable(response.failure.kind)


def _of(payment: Payment) -> dict[str, object]:
    return {
        "order_id": payment.request.order_id,
        "attempt": payment.attempt,
        "correlation_id": payment.correlation_id,
        "state": payment.state,
    }
