"""Compares one payment's row with its PaymentIntent at Stripe, and corrects the row: for webhooks and scheduled runs.

an event of a PaymentIntent ─► reconcile_event ─┐  read the row, then Stripe, then write on the row's revision
an unfinished row ───────────► reconcile_row ───┴─► find_discrepancy ─► write what Stripe says, cancel, or alarm

What Stripe says later wins: a success is written over DECLINED. Nothing is confirmed here, and nothing is created
except to finish a cancellation that was requested. A row that names no PaymentIntent is looked up: it may be a restored
one. An alarm is raised before the row is written: once the row says what Stripe says, another event of the same change
raises none.
"""

from dataclasses import replace
from enum import StrEnum
from typing import Any

import stripe
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.contract.states import PaymentState
from onecharge.payments.after_charge import AfterCharge, new_requests
from onecharge.payments.answers import ANSWERS
from onecharge.payments.cancel import finish_cancellation
from onecharge.payments.canceled_orders import refund_canceled_order
from onecharge.payments.charge import look_up
from onecharge.payments.charge_rules import (
    MONEY_DIFFERS,
    SEVERAL_SUCCEEDED,
    UNPAID_STATES,
    CancelReason,
    ConfirmResult,
    Finalize,
    FrozenRequest,
    Payment,
    StripeIntent,
    decide,
    final_of,
    is_stopped_by_hand,
    review_of_stopped,
)
from onecharge.payments.deliveries import count_end
from onecharge.payments.rows import ReleaseLease
from onecharge.payments.stripe_events import EventDeferred, PaymentIntentEvent
from onecharge.payments.stripe_gateway import StripeResponse
from onecharge.payments.stripe_responses import LookupInconclusive, ResponseKind, classify
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.aws import is_outage
from onecharge.runtime.secrets import SecretUnavailable

REQUIRES_ACTION_EXPIRED = "requires_action_expired"
"""The decline code of an attempt whose customer did not authenticate in time."""

UNATTENDED_SECONDS = 1800
"""A row that was claimed longer ago is unattended: a message backs off for 15 minutes at most."""

_UNKNOWN = "Stripe has no such PaymentIntent"

TRIES = 3
"""How often an event is compared with a row that others keep writing, before it is deferred."""

OUTAGES = (EventDeferred, LookupInconclusive, stripe.StripeError, BotoCoreError, ClientError, SecretUnavailable)
"""What may stop the work on an event or a row halfway: it has to be done again."""


def cause_of(error: Exception) -> Cause | None:
    """Why what stopped the work does not resolve by itself, if so."""
    if isinstance(error, EventDeferred):
        return error.cause
    if isinstance(error, stripe.StripeError):
        return ANSWERS[classify(error).kind].charge_alarm
    is_expected = is_outage(error) if isinstance(error, ClientError) else isinstance(error, OUTAGES)
    return None if is_expected else Cause.UNEXPECTED_ERROR


class RowChanged(EventDeferred):
    """Another worker has written the row since it was read: it is compared again."""


# ---------------------------------------------------------------- how they differ: pure


class Discrepancy(StrEnum):
    """How a PaymentIntent that an event or a row names differs from the row of its order."""

    NONE = "row and Stripe agree, or a worker will finalize the row"
    LOST_ROW = "the PaymentIntent succeeded, and there is no row: the row is written again"
    WITHOUT_ROW = "the PaymentIntent succeeded, there is no row, and it says too little to write one"
    PAID = "the PaymentIntent succeeded: the row becomes SUCCEEDED"
    PAID_LATE = "it succeeded after the attempt was declined: the row becomes SUCCEEDED"
    PAID_TWICE = "another PaymentIntent of the same order succeeded as well: a person has to see it"
    PAID_AFTER_CANCEL = "it succeeded although the order is canceled: it is refunded"
    MONEY_DIFFERS = "it succeeded with another amount or currency than was frozen"
    DECLINED = "the customer's bank declined: the row becomes DECLINED"
    EXPIRED = "nobody acted in time: it is canceled, then the row becomes DECLINED"
    CANCELED = "it was canceled for the customer: the row becomes CANCELED"
    STOPPED = "a person canceled it at Stripe: a person has to decide about the order"
    REVERSED = "the row says SUCCEEDED, and its PaymentIntent does not"


_STATES = {
    Discrepancy.PAID: PaymentState.SUCCEEDED,
    Discrepancy.PAID_LATE: PaymentState.SUCCEEDED,
    Discrepancy.MONEY_DIFFERS: PaymentState.NEEDS_REVIEW,
    Discrepancy.DECLINED: PaymentState.DECLINED,
    Discrepancy.CANCELED: PaymentState.CANCELED,
}
"""What the row becomes."""

_RECOVERED = (Discrepancy.LOST_ROW, Discrepancy.PAID, Discrepancy.PAID_LATE)
"""A PaymentIntent succeeded that the row does not name, or there is none: what followed is unknown, too."""

_CAUSES = {
    Discrepancy.LOST_ROW: Cause.ROW_LOST,
    Discrepancy.WITHOUT_ROW: Cause.ROW_LOST,
    Discrepancy.PAID_LATE: Cause.PAID_AFTER_DECLINE,
    Discrepancy.PAID_TWICE: Cause.MONEY_DIFFERS,
    Discrepancy.MONEY_DIFFERS: Cause.MONEY_DIFFERS,
    Discrepancy.STOPPED: Cause.NEEDS_REVIEW,
    Discrepancy.REVERSED: Cause.MONEY_DIFFERS,
}
"""Of those that are an alarm. (The refund of PAID_AFTER_CANCEL raises its own.)"""


def find_discrepancy(
    payment: Payment | None, intent: StripeIntent, *, now: float, requires_action_seconds: int
) -> Discrepancy:
    """Compare the row, or its absence, with the PaymentIntent.

    Args:
        now: epoch seconds.
        requires_action_seconds: how long the customer may take to authenticate.
    """
    is_paid = intent.status == "succeeded"
    if payment is None:
        lost = Discrepancy.WITHOUT_ROW if intent.placed_at is None else Discrepancy.LOST_ROW
        return lost if is_paid else Discrepancy.NONE
    if is_paid:
        return _of_success(payment, intent, now)
    is_own = intent.payment_intent_id == payment.payment_intent_id
    if is_own and payment.state is PaymentState.SUCCEEDED:
        return Discrepancy.REVERSED
    if is_own and payment.state is PaymentState.REQUIRES_ACTION:
        expired = now - (payment.finalized_at or payment.claimed_at) >= requires_action_seconds
        return _of_requires_action(payment, intent, expired=expired)
    return Discrepancy.NONE


def _of_success(payment: Payment, intent: StripeIntent, now: float) -> Discrepancy:
    is_own = intent.payment_intent_id == payment.payment_intent_id
    if is_own and payment.state is PaymentState.PENDING and now < payment.lease_expires_at:
        # The lease owner finalizes it; if it crashes, SQS delivers the message again.
        return Discrepancy.NONE
    if payment.state is PaymentState.SUCCEEDED:
        return Discrepancy.NONE if is_own else Discrepancy.PAID_TWICE
    if payment.state is PaymentState.CANCELED:
        return Discrepancy.PAID_AFTER_CANCEL
    if intent.money_differs_from(payment.request):
        return Discrepancy.NONE if payment.state is PaymentState.NEEDS_REVIEW else Discrepancy.MONEY_DIFFERS
    if payment.state is PaymentState.NEEDS_REVIEW and payment.code == SEVERAL_SUCCEEDED:
        # One of them may be refunded by now, and this may be an event of that one: a person decides which of them pays.
        return Discrepancy.NONE
    return Discrepancy.PAID_LATE if payment.state is PaymentState.DECLINED else Discrepancy.PAID


def _of_requires_action(payment: Payment, intent: StripeIntent, *, expired: bool) -> Discrepancy:
    if intent.is_canceled_by_customer:
        return Discrepancy.CANCELED
    if payment.cancel_requested_at is not None:
        # DECLINED would take the row out of the index of unfinished rows: `reconcile_row` finishes the cancellation.
        return Discrepancy.NONE
    if intent.status == "canceled":
        return Discrepancy.STOPPED if is_stopped_by_hand(payment, intent) else Discrepancy.DECLINED
    if intent.status == "requires_action":
        return Discrepancy.EXPIRED if expired else Discrepancy.NONE
    return Discrepancy.DECLINED if intent.status == "requires_payment_method" else Discrepancy.NONE


# ---------------------------------------------------------------- an event, or a row


def reconcile_event(event: PaymentIntentEvent, tools: Tools) -> None:
    """Correct the row of the event's order by what Stripe shows now. Raises OUTAGES.

    The event shows what was: if the row says the same, or more, Stripe is not asked.
    """
    payment_intent_id = event.intent.payment_intent_id
    for _ in range(TRIES):
        payment = tools.payments.read(event.order_id)
        if compare(payment, event.intent, tools) is Discrepancy.NONE:
            return
        intent = retrieve(payment_intent_id, tools)
        if intent is None and payment is not None and payment.payment_intent_id == payment_intent_id:
            # The event and the row name it: our API key belongs to another account.
            raise EventDeferred(_UNKNOWN, cause=Cause.STRIPE_ACCOUNT)
        if intent is None:
            # No row names it: nothing can be corrected.
            tools.report("EventUnknownToStripe", Cause.STRIPE_ACCOUNT, _UNKNOWN, payment, order_id=event.order_id)
            return
        try:
            _correct(event.order_id, payment, intent, tools)
        except RowChanged:
            # Usually by the worker of the same charge, which has finalized the row by now.
            continue
        return
    raise RowChanged("the row kept changing")


def reconcile_row(payment: Payment, tools: Tools) -> bool:
    """Finish a row that no message's worker finishes. Raises OUTAGES.

    Args:
        payment: an unfinished row, as it was read just now.

    Returns:
        Whether it is, or will be, finished without a person.
    """
    if payment.state not in UNPAID_STATES:
        return True
    if payment.cancel_requested_at is not None:
        return finish_cancellation(payment, tools).state not in UNPAID_STATES
    if payment.state is PaymentState.DECLINED or _is_attended(payment, tools):
        return True
    if payment.payment_intent_id is None:
        return _finish_unattended(payment, look_up_row(payment, tools), tools)
    intent = retrieve(payment.payment_intent_id, tools)
    if intent is None:
        tools.report("RowUnknownToStripe", Cause.STRIPE_ACCOUNT, _UNKNOWN, payment)
        return False
    if _correct(payment.request.order_id, payment, intent, tools):
        return True
    if payment.state is PaymentState.REQUIRES_ACTION:
        return True
    return _finish_unattended(payment, decide(payment, intent, ConfirmResult.OF_ANOTHER_WORKER), tools)


def _is_attended(payment: Payment, tools: Tools) -> bool:
    """Whether a worker has the lease, or a message will soon claim the row again."""
    attended_until = max(payment.lease_expires_at, payment.claimed_at + UNATTENDED_SECONDS)
    return payment.state is PaymentState.PENDING and tools.instruments.clock() < attended_until


def look_up_row(payment: Payment, tools: Tools) -> Finalize | None:
    """What follows from the order's PaymentIntents for a row that names none; those that are open are canceled."""
    nothing_created = Finalize(PaymentState.PENDING)
    try:
        return look_up(payment, nothing_created, tools)
    except ReleaseLease as release:
        raise EventDeferred(release.why, cause=release.alarm) from release


def _finish_unattended(payment: Payment, decision: object, tools: Tools) -> bool:
    """Finalize an unattended row if Stripe has decided its attempt; returns as `reconcile_row` does."""
    if not isinstance(decision, Finalize):
        # Only a message's worker creates, confirms, or cancels for the next generation.
        return False
    if decision.alarm:
        tools.report("UnattendedNeedsReview", decision.alarm, str(decision.code), payment)
    _write(payment, decision, tools)
    return True


# ---------------------------------------------------------------- one discrepancy


def compare(payment: Payment | None, intent: StripeIntent, tools: Tools) -> Discrepancy:
    """How the row differs from the PaymentIntent at this moment."""
    seconds = tools.requires_action_seconds
    return find_discrepancy(payment, intent, now=tools.instruments.clock(), requires_action_seconds=seconds)


def _correct(order_id: str, payment: Payment | None, intent: StripeIntent, tools: Tools) -> bool:
    """Act on the discrepancy; False if there is none."""
    discrepancy = compare(payment, intent, tools)
    if discrepancy is Discrepancy.NONE:
        return False
    charged_at = tools.stripe.charged_at(intent) if discrepancy is Discrepancy.LOST_ROW else None
    if charged_at and charged_at + RETENTION_SECONDS <= tools.instruments.clock():
        # It was not lost, it has expired: written again, it would answer for the next order under the same key.
        return False
    if cause := _CAUSES.get(discrepancy):
        tools.report(f"Discrepancy.{discrepancy.name}", cause, discrepancy, payment, intent, order_id=order_id)
    is_own = payment is not None and payment.payment_intent_id == intent.payment_intent_id
    # A PENDING row may stand for a lost one, which knew of refunds and disputes. A review may be closed by now.
    is_known = payment and is_own and payment.state is not PaymentState.PENDING and not intent.review
    if discrepancy in _RECOVERED and not is_known:
        intent = replace(intent, after_charge=look_back(intent, tools))
        about = {"order_id": order_id, "payment_intent_id": intent.payment_intent_id}
        before = payment.after_charge if payment else AfterCharge()
        report_after_charge(before, intent.after_charge or AfterCharge(), tools, **about)
    match discrepancy:
        case Discrepancy.LOST_ROW if charged_at:
            _recover(order_id, intent, charged_at, tools)
        case Discrepancy.EXPIRED if payment:
            _expire(order_id, payment, intent, tools)
        case Discrepancy.PAID_AFTER_CANCEL if payment:
            refund_canceled_order(payment, intent, tools)
        case Discrepancy.STOPPED if payment:
            _write(payment, review_of_stopped(intent), tools)
        case _ if payment and discrepancy in _STATES:
            _write(payment, _final(_STATES[discrepancy], intent, payment), tools)
    return True


def _expire(order_id: str, payment: Payment, intent: StripeIntent, tools: Tools) -> None:
    """Cancel the PaymentIntent first: the customer's page could still confirm it. Stripe decides the race."""
    canceled = _intent_of(tools.stripe.cancel(intent.payment_intent_id, CancelReason.ABANDONED))
    if canceled is None or canceled.is_open:
        raise EventDeferred("an expired PaymentIntent could not be canceled")
    _correct(order_id, payment, canceled, tools)


def recover_row(order_id: str, payment_intent_id: str, tools: Tools) -> None:
    """Write an order's lost row again, if this PaymentIntent is the order's, and succeeded. Raises OUTAGES."""
    intent = retrieve(payment_intent_id, tools)
    # What refunds it may name another order: a person has typed the id.
    if intent is not None and intent.order_id == order_id:
        _correct(order_id, None, intent, tools)


def _recover(order_id: str, intent: StripeIntent, charged_at: int, tools: Tools) -> None:
    """Write a paid order's lost row again. If two have succeeded, one may be refunded: a person decides which pays."""
    now = tools.instruments.now()
    # `compare` found the order's time in the metadata.
    request = FrozenRequest(order_id, intent.amount_minor, intent.currency, intent.customer_id, intent.placed_at or 0)
    nameless = Payment(request=request, attempt=1, payment_method="", state=PaymentState.PENDING)
    # An older one that succeeded would have been found before this one was confirmed. So its own time is early enough
    # for an account without search, and what it lists is complete.
    age_is_known = replace(tools, look_up_placed_before=lambda: 0)
    found = look_up_row(nameless, age_is_known)
    review = SEVERAL_SUCCEEDED if found and found.code == SEVERAL_SUCCEEDED else None
    if review:
        twice = Discrepancy.PAID_TWICE
        tools.report(f"Discrepancy.{twice.name}", Cause.MONEY_DIFFERS, twice, None, intent, order_id=order_id)
    if not tools.payments.recover(
        order_id, intent, charged_at=charged_at, review=review, correlation_id="recovered", now=now
    ):
        raise RowChanged("there is a row by now")


def report_after_charge(before: AfterCharge, now: AfterCharge, tools: Tools, **about: object) -> None:
    """Raise an alarm for each dispute that newly needs a response, and for a new suspicion."""
    if now.fraud_suspicion not in (None, before.fraud_suspicion):
        about_it = {**about, "fraud_suspicion": now.fraud_suspicion}
        tools.report("FraudSuspected", Cause.FRAUD_SUSPECTED, "do not ship, and decide at Stripe", **about_it)
    for dispute_id in new_requests(before.disputes, now.disputes):
        tools.report(
            "ChargeDisputed",
            Cause.CHARGE_DISPUTED,
            "charge disputed: respond at Stripe",
            **{**about, "dispute_id": dispute_id, "dispute_status": now.disputes[dispute_id]},
        )


def _write(payment: Payment, final: Finalize, tools: Tools) -> None:
    instruments = tools.instruments
    if not tools.payments.finalize_unclaimed(payment, final, now=instruments.now()):
        raise RowChanged("the row has changed since it was read")
    instruments.count(f"Reconciled.{final.state}")
    count_end(instruments, payment, final.state)
    about: dict[str, Any] = {**payment.log_fields, "payment_intent_id": final.payment_intent_id, "state": final.state}
    instruments.log("payment finalized as Stripe shows it", **about)


def _final(state: PaymentState, intent: StripeIntent, payment: Payment) -> Finalize:
    final = final_of(state, intent, payment)
    if state is PaymentState.NEEDS_REVIEW:
        return replace(final, code=MONEY_DIFFERS)
    if state is PaymentState.DECLINED:
        # A PaymentIntent that requires action is canceled as abandoned only when it expires.
        expired = intent.cancellation_reason == CancelReason.ABANDONED
        return replace(final, code=REQUIRES_ACTION_EXPIRED if expired else intent.decline_code or intent.status)
    return final


# ---------------------------------------------------------------- what Stripe shows now


def retrieve(payment_intent_id: str, tools: Tools) -> StripeIntent | None:
    """The PaymentIntent as it is now; None if our Stripe account has none of that id."""
    return _intent_of(tools.stripe.retrieve(payment_intent_id))


def look_back(intent: StripeIntent, tools: Tools) -> AfterCharge:
    """What followed the charge of a PaymentIntent that the row did not know of."""
    return tools.stripe.after_charge(intent)


def _intent_of(response: StripeResponse[StripeIntent]) -> StripeIntent | None:
    if response.failure is None:
        return response.found
    if response.failure.kind is ResponseKind.NOT_FOUND:
        return None
    raise EventDeferred(response.failure.kind, cause=ANSWERS[response.failure.kind].charge_alarm)
