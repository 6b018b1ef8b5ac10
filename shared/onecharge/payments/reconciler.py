"""Reconciles payment rows with Stripe, for webhooks and scheduled runs. Nothing is ever confirmed here.

a webhook's or a listed event ─► handle_event ──┐  read the row's revision, then Stripe, then write on that revision
a row that is unfinished ──────► reconcile ─────┴─► find_discrepancy ─► write what Stripe says, cancel, or alarm

What Stripe says later wins: a success is written over DECLINED, whoever holds the row.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from aws_lambda_powertools import Logger

from onecharge.payments.cancel import CancelPayment
from onecharge.payments.protocol import (
    CancelReason,
    Discrepancy,
    Finalize,
    FoundIntent,
    Payment,
    find_discrepancy,
)
from onecharge.payments.store import PaymentStore
from onecharge.payments.stripe_gateway import PaymentIntentEvent, StripeGateway, StripeResponse
from onecharge.payments.stripe_responses import ResponseKind
from onecharge.payments.time_bounds import TimeBounds
from onecharge.states import PaymentState

REQUIRES_ACTION_EXPIRED = "requires_action_expired"
"""The code of an attempt for which nobody has authenticated in time."""

_UNPAID = (PaymentState.PENDING, PaymentState.REQUIRES_ACTION, PaymentState.DECLINED)

RefundCanceledOrder = Callable[[Payment], None]
"""Gives back what was charged although the order is canceled."""


class StripeUnavailable(Exception):
    """Stripe gave no answer that says anything: the event, or the row, is reconciled later."""

    def __init__(self, kind: ResponseKind) -> None:
        super().__init__(kind)
        self.kind = kind


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

        Late, repeated and disordered events are harmless: an event is a snapshot, and so no more than a hint.
        """
        payment = self.store.read(event.order_id)
        if self._compare(payment, event.intent) is Discrepancy.NONE:
            return
        intent = self._retrieved(event.intent.payment_intent_id)
        if intent is not None:
            self._correct(event.order_id, payment, intent)

    def reconcile(self, order_id: str) -> bool:
        """Finish what nobody else does; returns whether the row is, or will be, finished without a person."""
        payment = self.store.read(order_id)
        if payment is None or payment.state not in _UNPAID:
            return True
        if payment.cancel_requested_at is not None:
            finished = self.cancel.finish(payment, deadline=self.bounds.deadline(self.clock()))
            return finished.state in (PaymentState.CANCELED, PaymentState.SUCCEEDED, PaymentState.NEEDS_REVIEW)
        if payment.payment_intent_id is None:
            return False
        intent = self._retrieved(payment.payment_intent_id)
        if intent is None:
            self._report(payment.request.order_id, payment, "RowUnknownToStripe", "Stripe has no such PaymentIntent")
            return False
        self._correct(order_id, payment, intent)
        return payment.state is PaymentState.REQUIRES_ACTION or intent.status == "succeeded"

    # ------------------------------------------------------------ one discrepancy

    def _compare(self, payment: Payment | None, intent: FoundIntent) -> Discrepancy:
        return find_discrepancy(payment, intent, now=self.clock(), requires_action_seconds=self.requires_action_seconds)

    def _correct(self, order_id: str, payment: Payment | None, intent: FoundIntent) -> None:
        discrepancy = self._compare(payment, intent)
        if payment is None:
            if discrepancy is Discrepancy.LOST_ROW:
                self._recover(order_id, intent)
            return
        match discrepancy:
            case Discrepancy.PAID | Discrepancy.PAID_LATE:
                self._write(payment, _as(PaymentState.SUCCEEDED, intent))
                if discrepancy is Discrepancy.PAID_LATE:
                    self._report(order_id, payment, "PaidAfterDecline", discrepancy, intent)
            case Discrepancy.DECLINED:
                self._write(payment, _declined(intent))
            case Discrepancy.CANCELED:
                self._write(payment, _as(PaymentState.CANCELED, intent))
            case Discrepancy.EXPIRED:
                self._expire(order_id, payment, intent)
            case Discrepancy.PAID_AFTER_CANCEL:
                self._report(order_id, payment, "CanceledOrderCharged", discrepancy, intent)
                self.refund_canceled_order(_with_intent(payment, intent))
            case Discrepancy.OTHER_MONEY:
                self._write(payment, _as(PaymentState.NEEDS_REVIEW, intent, code="amount or currency differs"))
                self._report(order_id, payment, "OtherMoneyCharged", discrepancy, intent)
            case Discrepancy.PAID_TWICE:
                self._report(order_id, payment, "ChargedTwice", discrepancy, intent)
            case Discrepancy.REVERSED:
                self._report(order_id, payment, "RowDiffersFromStripe", discrepancy, intent)

    def _expire(self, order_id: str, payment: Payment, intent: FoundIntent) -> None:
        """Only a canceled PaymentIntent makes room for another attempt: its page could still confirm an open one."""
        response = self.gateway.cancel(intent.payment_intent_id, CancelReason.ABANDONED)
        now_at_stripe = _intent_of(response)
        if now_at_stripe is None or now_at_stripe.is_open:
            raise StripeUnavailable(ResponseKind.NO_ANSWER)
        if now_at_stripe.status == "canceled" and not now_at_stripe.is_canceled_by_customer:
            final = _as(PaymentState.DECLINED, now_at_stripe, code=REQUIRES_ACTION_EXPIRED)
            self._write(payment, final)
        else:
            self._correct(order_id, payment, now_at_stripe)

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
    return Finalize(
        PaymentState.DECLINED,
        intent.payment_intent_id,
        intent.generation,
        code=intent.error_code or intent.status,
        advice_code=intent.advice_code,
        declined_charge_id=intent.latest_charge,
    )


def _with_intent(payment: Payment, intent: FoundIntent) -> Payment:
    return replace(payment, payment_intent_id=intent.payment_intent_id)


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
