"""Reconciles payment rows with Stripe, for webhooks and scheduled runs.

an event, from a webhook or listed ─► handle_event ─┐  read the row, then Stripe, then write on the row's revision
an unfinished row ──────────────────► reconcile ────┴─► find_discrepancy ─► write what Stripe says, cancel, or alarm

What Stripe says later wins: a success is written over DECLINED, whoever holds the row. Nothing is confirmed here, and
nothing is created except to finish a cancellation that was requested.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from onecharge.contract.states import PaymentState
from onecharge.payments.charges.cancel import finish_cancellation
from onecharge.payments.charges.charge import ChargeTools
from onecharge.payments.charges.discrepancy import Discrepancy, find_discrepancy
from onecharge.payments.charges.gateway import StripeGateway, StripeResponse
from onecharge.payments.charges.protocol import (
    CHARGE_RULES,
    OTHER_MONEY,
    UNPAID_STATES,
    CancelReason,
    ConfirmResult,
    Finalize,
    FoundIntent,
    Payment,
)
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.payments.stripe_events import EventDeferred, PaymentIntentEvent
from onecharge.payments.stripe_responses import ResponseKind
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.work import count_money
from onecharge.runtime.alarms import Cause

REQUIRES_ACTION_EXPIRED = "requires_action_expired"
"""The decline code of an attempt whose customer did not authenticate in time."""

UNATTENDED_SECONDS = 1800
"""A row that was claimed longer ago is unattended: a message backs off for 15 minutes at most."""


def refund_by_hand(_: Payment, __: FoundIntent) -> None:
    """Without the refunds part: the alarm asks a person to refund it at Stripe."""


class StripeUnavailable(EventDeferred):
    """Stripe's response says nothing about the PaymentIntent: the event, or the row, is reconciled later."""

    def __init__(self, kind: ResponseKind) -> None:
        super().__init__(kind)
        self.kind = kind

    @property
    def cause(self) -> Cause | None:
        """Why it does not resolve by itself, if so: as with an API key of another account."""
        return CHARGE_RULES[self.kind].alarm


class RowChanged(EventDeferred):
    """Another worker has written the row since it was read: it is reconciled again."""


@dataclass(frozen=True)
class Reconciler:
    """Reconciles through a store and Stripe.

    Every method is idempotent, and may raise:
        StripeUnavailable: Stripe did not answer, or refused.
        RowChanged: another worker has written the row meanwhile.
        BotoCoreError, ClientError: DynamoDB did not answer.
    """

    tools: ChargeTools
    requires_action_seconds: int
    """How long a customer may take to authenticate."""
    bounds: TimeBounds
    refund_canceled_order: Callable[[Payment, FoundIntent], object] = refund_by_hand
    """Refunds a PaymentIntent that succeeded although its order is canceled."""

    @property
    def store(self) -> PaymentStore:
        return self.tools.store

    @property
    def gateway(self) -> StripeGateway:
        return self.tools.gateway

    @property
    def instruments(self) -> Instruments:
        return self.tools.instruments

    def handle_event(self, event: PaymentIntentEvent) -> None:
        """Correct the row of the event's order by what Stripe shows now.

        An event is a snapshot, and so only a hint: late, duplicate and disordered events are harmless.
        """
        payment = self.store.read(event.order_id)
        if self._compare(payment, event.intent) is not Discrepancy.NONE:
            self._compare_with_stripe(event.order_id, payment, event.intent.payment_intent_id)

    def reconcile(self, payment: Payment) -> bool:
        """Finish a row that nobody else finishes. Returns whether it is, or will be, finished without a person.

        Args:
            payment: an unfinished row, as it was read just now.
        """
        if payment.state not in UNPAID_STATES:
            return True
        if payment.cancel_requested_at is not None:
            tools = replace(self.tools, deadline=self.bounds.deadline(self.instruments.clock()))
            finished = finish_cancellation(payment, tools)
            return finished.state not in UNPAID_STATES
        if payment.state is PaymentState.DECLINED or self._is_attended(payment):
            return True
        if payment.payment_intent_id is None:
            # Nothing can be charged, and only a message's worker creates: the order service republishes it.
            return False
        intent = self._retrieve(payment.payment_intent_id)
        if intent is None:
            self._report(
                payment.request.order_id,
                payment,
                "RowUnknownToStripe",
                Cause.STRIPE_ACCOUNT,
                "Stripe has no such PaymentIntent",
            )
            return False
        return self._correct(payment.request.order_id, payment, intent) or self._finish_unattended(payment, intent)

    def _is_attended(self, payment: Payment) -> bool:
        """Whether a worker holds the row, or a message will soon claim it again."""
        return payment.state is PaymentState.PENDING and self.instruments.clock() < max(
            payment.lease_expires_at, payment.claimed_at + UNATTENDED_SECONDS
        )

    def _finish_unattended(self, payment: Payment, intent: FoundIntent) -> bool:
        """Finalize an unattended row if Stripe has decided its attempt; returns as `reconcile` does."""
        if payment.state is not PaymentState.PENDING:
            return payment.state is PaymentState.REQUIRES_ACTION
        decision = self.tools.steps.decide(payment, intent, ConfirmResult.OF_ANOTHER_WORKER)
        if not isinstance(decision, Finalize):
            # Only a message's worker confirms, or cancels for the next generation.
            return False
        self._write(payment, decision)
        if decision.alarm:
            why = str(decision.code)
            self._report(payment.request.order_id, payment, "UnattendedNeedsReview", decision.alarm, why, intent)
        return True

    # ------------------------------------------------------------ one discrepancy

    def _compare_with_stripe(self, order_id: str, payment: Payment | None, payment_intent_id: str) -> None:
        intent = self._retrieve(payment_intent_id)
        if intent is not None:
            self._correct(order_id, payment, intent)
        elif payment is not None and payment.payment_intent_id == payment_intent_id:
            # The event and the row name it: our API key belongs to another account.
            raise StripeUnavailable(ResponseKind.NOT_FOUND)
        else:
            self._report(
                order_id, payment, "EventUnknownToStripe", Cause.STRIPE_ACCOUNT, "Stripe has no such PaymentIntent"
            )

    def _compare(self, payment: Payment | None, intent: FoundIntent) -> Discrepancy:
        now = self.instruments.clock()
        return find_discrepancy(payment, intent, now=now, requires_action_seconds=self.requires_action_seconds)

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
                    self._report(order_id, payment, "PaidAfterDecline", Cause.PAID_AFTER_DECLINE, discrepancy, intent)
            case Discrepancy.DECLINED | Discrepancy.EXPIRED if payment.cancel_requested_at is not None:
                # DECLINED would take the row out of the index: `reconcile` finishes the cancellation first.
                return False
            case Discrepancy.DECLINED:
                self._write(payment, _declined(intent))
            case Discrepancy.CANCELED:
                self._write(payment, _as(PaymentState.CANCELED, intent))
            case Discrepancy.EXPIRED:
                self._expire(order_id, payment, intent)
            case Discrepancy.PAID_AFTER_CANCEL:
                self._report(order_id, payment, "CanceledOrderCharged", Cause.MONEY_DIFFERS, discrepancy, intent)
                self.refund_canceled_order(payment, intent)
            case Discrepancy.OTHER_MONEY:
                self._write(payment, _as(PaymentState.NEEDS_REVIEW, intent, code=OTHER_MONEY))
                self._report(order_id, payment, "OtherMoneyCharged", Cause.MONEY_DIFFERS, discrepancy, intent)
            case Discrepancy.PAID_TWICE:
                self._report(order_id, payment, "ChargedTwice", Cause.MONEY_DIFFERS, discrepancy, intent)
            case Discrepancy.REVERSED:
                self._report(order_id, payment, "RowDiffersFromStripe", Cause.MONEY_DIFFERS, discrepancy, intent)
        return True

    def _expire(self, order_id: str, payment: Payment, intent: FoundIntent) -> None:
        """Cancel the PaymentIntent first: the customer's page could still confirm it. Stripe decides the race."""
        canceled = _intent_of(self.gateway.cancel(intent.payment_intent_id, CancelReason.ABANDONED))
        if canceled is None or canceled.is_open:
            raise StripeUnavailable(ResponseKind.NO_ANSWER)
        self._correct(order_id, payment, canceled)

    def _recover(self, order_id: str, intent: FoundIntent) -> None:
        """The row was lost, and the order is paid."""
        if intent.placed_at is None:
            self._report(order_id, None, "ChargeWithoutRow", Cause.ROW_LOST, Discrepancy.LOST_ROW, intent)
            return
        if not self.store.recover(order_id, intent, correlation_id="recovered", now=self.instruments.now()):
            raise RowChanged
        self._report(order_id, None, "RowRecovered", Cause.ROW_LOST, Discrepancy.LOST_ROW, intent)

    def _write(self, payment: Payment, final: Finalize) -> None:
        if not self.store.finalize_unclaimed(payment, final, now=self.instruments.now()):
            raise RowChanged
        self.instruments.count(f"Reconciled.{final.state}")
        if final.state is PaymentState.SUCCEEDED:
            count_money(self.instruments, payment.subject, payment.amount_minor, payment.currency)
        about: dict[str, Any] = {
            **payment.log_fields,
            "payment_intent_id": final.payment_intent_id,
            "state": final.state,
        }
        self.instruments.log("payment finalized as Stripe shows it", **about)

    def _retrieve(self, payment_intent_id: str) -> FoundIntent | None:
        return _intent_of(self.gateway.retrieve(payment_intent_id))

    def _report(
        self,
        order_id: str,
        payment: Payment | None,
        metric: str,
        cause: Cause,
        message: str,
        intent: FoundIntent | None = None,
    ) -> None:
        """Raise an alarm: something happened that should not, or that no rule can correct."""
        self.instruments.count(metric)
        row: dict[str, Any] = {**payment.log_fields, "state": payment.state} if payment else {}
        at_stripe = {"payment_intent_id": intent.payment_intent_id, "status_at_stripe": intent.status} if intent else {}
        self.instruments.log(message, alarm=cause, **{"order_id": order_id} | row | at_stripe)


def _as(state: PaymentState, intent: FoundIntent, *, code: str | None = None) -> Finalize:
    return Finalize(
        state,
        intent.payment_intent_id,
        intent.generation,
        code=code,
        declined_charge_id=intent.latest_charge if state is PaymentState.DECLINED else None,
    )


def _declined(intent: FoundIntent) -> Finalize:
    # A PaymentIntent that requires action is canceled as abandoned only when it expires.
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
