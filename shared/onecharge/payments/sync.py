"""Stripe's later word, on one page: the rows say what Stripe says now.

an event ─────────► sync ──────────┐  read the row, then Stripe, compare, raise the alarm, write on the row's revision
an unfinished row ► reconcile_row ─┘  after an event, refunds and disputes are read again until nothing differs

An event is a hint: it says which PaymentIntent to look at, and may come late, several times, out of order or never. If
the row says what an event of a PaymentIntent, or of a charge's refunds, shows, Stripe is not asked; after any other
event it is. What Stripe says later wins: a success is written over DECLINED.
Nothing is confirmed here, and nothing is created except to finish a cancellation that was requested, or a refund of a
canceled order. An alarm is raised before the row is written: once the row says what Stripe says, another event of the
same change raises none.

While a worker has the row's lease, its PaymentIntent's state is left to it: the worker's message is not acknowledged
before the row is finalized, and the scheduled run reads the same event minutes later.
"""

from dataclasses import replace
from typing import Any

import stripe
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.contract.states import PaymentState
from onecharge.payments.after_charge import EARLY_FRAUD_WARNING, AfterCharge, new_requests
from onecharge.payments.answers import ANSWERS, cause_of_error
from onecharge.payments.cancel import finish_cancellation
from onecharge.payments.canceled_orders import refund_canceled_order
from onecharge.payments.charge import look_up
from onecharge.payments.charge_rules import (
    SEVERAL_SUCCEEDED,
    UNPAID_STATES,
    CancelReason,
    ConfirmResult,
    Finalize,
    FrozenRequest,
    Payment,
    StripeIntent,
    decide,
)
from onecharge.payments.deliveries import count_end
from onecharge.payments.rows import ReleaseLease
from onecharge.payments.stripe_events import TRIES, EventDeferred, RowChanged, StripeEvent
from onecharge.payments.stripe_gateway import StripeResponse
from onecharge.payments.stripe_responses import LookupInconclusive, ResponseKind
from onecharge.payments.sync_refund import sync_refund
from onecharge.payments.sync_rules import (
    CAUSES,
    Discrepancy,
    final_after,
    find_discrepancy,
)
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.aws import is_outage
from onecharge.runtime.secrets import SecretUnavailable

UNATTENDED_SECONDS = 1800
"""A row that was claimed longer ago is unattended: a message backs off for 15 minutes at most."""

OUTAGES = (EventDeferred, LookupInconclusive, stripe.StripeError, BotoCoreError, ClientError, SecretUnavailable)
"""What may stop the work on an event or a row halfway: it has to be done again."""

_UNKNOWN = "Stripe has no such PaymentIntent"


def cause_of(error: Exception) -> Cause | None:
    """The alarm's cause if a person must act, else None."""
    if isinstance(error, EventDeferred):
        return error.cause
    if isinstance(error, LookupInconclusive | stripe.StripeError):
        return cause_of_error(error)
    is_expected = is_outage(error) if isinstance(error, ClientError) else isinstance(error, OUTAGES)
    return None if is_expected else Cause.UNEXPECTED_ERROR


# ---------------------------------------------------------------- an event


def sync(event: StripeEvent, tools: Tools) -> None:
    """Make the rows of the event's payment and refund say what Stripe says now. Idempotent. Raises OUTAGES."""
    if event.refund is None or event.refund.has_failed:
        # Before the refund's own row: once that says FAILED, nothing else lowers the sum.
        order_id = _order_of(event, tools)
        if order_id is not None:
            sync_payment(order_id, event, tools)
    if event.refund is not None:
        sync_refund(event, event.refund, tools)


def sync_payment(order_id: str, event: StripeEvent, tools: Tools) -> None:
    """Compare the payment's row with the event's PaymentIntent, until nothing differs.

    The row is read first: what Stripe shows is newer than the revision that is written on. A sum is read once more
    after each write: another event's handler may have read a newer one meanwhile, and found nothing to write.
    """
    is_read_again = False
    for _ in range(TRIES):
        payment = tools.payments.read(order_id)
        if not is_read_again and _shows_nothing_new(event, payment, tools):
            return
        intent = look(order_id, event, payment, tools)
        try:
            if intent is None or not correct(order_id, payment, intent, tools, event):
                return
            is_read_again = True
        except RowChanged:
            pass  # Usually by the worker of the same charge, which has finalized the row by now.
    raise RowChanged("the row kept changing")


def _order_of(event: StripeEvent, tools: Tools) -> str | None:
    """The order whose payment the event is about; None if it is not ours."""
    if event.order_id is not None and event.payment_intent_id is not None and event.refund is None:
        return event.order_id
    if event.payment_intent_id is None:
        tools.instruments.count("EventWithoutOrder")
        return None
    # A dispute does not name its order. A refund may name any: a person has typed it. The PaymentIntent says it.
    intent = retrieve_or_none(event.payment_intent_id, tools)
    if intent is None:
        # The API key may be another account's for a while.
        tools.instruments.count("EventUnknownToStripe")
        raise EventDeferred(_UNKNOWN, cause=Cause.STRIPE_ACCOUNT)
    if intent.order_id is None:
        tools.instruments.count("EventWithoutOrder")
    return intent.order_id


def _shows_nothing_new(event: StripeEvent, payment: Payment | None, tools: Tools) -> bool:
    """Whether the row says already what the event shows."""
    if event.intent is not None:
        return compare(payment, event.intent, tools) is Discrepancy.NONE
    own = _if_of(event.payment_intent_id, payment)
    told = event.amount_refunded_minor
    return own is not None and told is not None and own.amount_refunded_minor == told


def _if_of(payment_intent_id: str | None, payment: Payment | None) -> Payment | None:
    """The row, if it names this PaymentIntent."""
    return payment if payment is not None and payment.is_of(payment_intent_id) else None


def look(order_id: str, event: StripeEvent, payment: Payment | None, tools: Tools) -> StripeIntent | None:
    """The event's PaymentIntent as it is now, with what followed its charge; None if it says nothing of the order."""
    intent = retrieve_or_none(str(event.payment_intent_id), tools)
    if intent is None and _if_of(event.payment_intent_id, payment):
        # The event and the row name it: our API key belongs to another account.
        raise EventDeferred(_UNKNOWN, cause=Cause.STRIPE_ACCOUNT)
    if intent is None:
        # No row names it: nothing can be corrected.
        tools.report("EventUnknownToStripe", Cause.STRIPE_ACCOUNT, _UNKNOWN, payment, order_id=order_id)
        return None
    # A person may have typed the id of another order, or have removed it.
    is_the_orders = intent.order_id == order_id or _if_of(intent.payment_intent_id, payment) is not None
    return with_what_followed(intent, payment, tools, event) if is_the_orders else None


def with_what_followed(
    intent: StripeIntent, payment: Payment | None, tools: Tools, event: StripeEvent | None = None
) -> StripeIntent:
    """With its refunds, disputes and suspicion, unless nothing is charged, or the row knows them.

    Args:
        event: that has to be read, if there is one: it may be about them.
    """
    own = _if_of(intent.payment_intent_id, payment)
    # A PENDING row may stand for a lost one, which knew of refunds and disputes. A review may be closed by now.
    knows = own is not None and own.state is not PaymentState.PENDING
    is_about_them = event is not None and event.intent is None
    if intent.status != "succeeded" or (knows and not intent.review and not is_about_them):
        return intent
    after = look_back(intent, tools)
    if not after.is_fraud_known:
        after = replace(after, fraud_suspicion=_told_suspicion(event, own if knows else None, after, intent, tools))
    return replace(intent, after_charge=after)


def _told_suspicion(
    event: StripeEvent | None, own: Payment | None, after: AfterCharge, intent: StripeIntent, tools: Tools
) -> str | None:
    """Without the right to read it: what the event says; if it is about something else, what the row knows."""
    if event is not None and event.is_about_fraud:
        why = "the API key may not read early fraud warnings, or reviews: what the event says is stored"
        tools.report("FraudNotRead", Cause.STRIPE_ACCOUNT, why, own, intent)
        was_warned = own is not None and own.fraud_suspicion == EARLY_FRAUD_WARNING
        return EARLY_FRAUD_WARNING if event.is_warning or was_warned else after.fraud_suspicion
    return own.fraud_suspicion if own else after.fraud_suspicion


# ---------------------------------------------------------------- a row


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
    intent = retrieve_or_none(payment.payment_intent_id, tools)
    if intent is None:
        tools.report("RowUnknownToStripe", Cause.STRIPE_ACCOUNT, _UNKNOWN, payment)
        return False
    if compare(payment, intent, tools) is not Discrepancy.NONE:
        correct(payment.request.order_id, payment, with_what_followed(intent, payment, tools), tools)
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
    try:
        return look_up(payment, None, tools)
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


def correct(
    order_id: str, payment: Payment | None, intent: StripeIntent, tools: Tools, event: StripeEvent | None = None
) -> bool:
    """Raise the alarms of what differs, then write it. Raises RowChanged.

    Args:
        event: which is applied; None if a row is visited.

    Returns:
        Whether Stripe has to be read once more.
    """
    discrepancy = compare(payment, intent, tools)
    charged_at = tools.stripe.charged_at(intent) if discrepancy is Discrepancy.LOST_ROW else 0
    if charged_at and charged_at + RETENTION_SECONDS <= tools.instruments.clock():
        # It was not lost, it has expired: written again, it would answer for the next order under the same key.
        discrepancy = Discrepancy.NONE
    if cause := CAUSES.get(discrepancy):
        tools.report(f"Discrepancy.{discrepancy.name}", cause, discrepancy, payment, intent, order_id=order_id)
    final = final_after(discrepancy, intent, payment) if payment else None
    own = _if_of(intent.payment_intent_id, payment)
    # What a row knows is of its own PaymentIntent: of another one all is new.
    before, after = own.after_charge if own else AfterCharge(), intent.after_charge
    is_told = event is not None and event.is_about_doubts
    if after and (own or final or discrepancy is Discrepancy.LOST_ROW or is_told):
        _report_what_followed(order_id, before, after, intent, tools)
    if payment and final:
        _write(payment, final, tools)
        return False
    if own and after and after != before:
        # The order shows the refunds and the disputes of its own PaymentIntent only.
        if tools.payments.record_after_charge(own, after, now=tools.instruments.now()):
            tools.instruments.count("AfterChargeRecorded")
        return True
    match discrepancy:
        case Discrepancy.LOST_ROW:
            _recover(order_id, intent, charged_at, tools)
        case Discrepancy.EXPIRED if payment:
            return _expire(order_id, payment, intent, tools)
        case Discrepancy.PAID_AFTER_CANCEL if payment and (event is None or event.intent):
            # By the PaymentIntent's own event, which is read again until it is done: no other one waits for it.
            refund_canceled_order(payment, intent, tools)
    return False


def _report_what_followed(
    order_id: str, before: AfterCharge, after: AfterCharge, intent: StripeIntent, tools: Tools
) -> None:
    """Raise an alarm for each dispute that newly needs a response, and for a new suspicion."""
    suspicion = after.fraud_suspicion
    if suspicion not in (None, before.fraud_suspicion):
        why = "do not ship, and decide at Stripe"
        tools.report("FraudSuspected", Cause.FRAUD_SUSPECTED, why, intent, order_id=order_id, fraud_suspicion=suspicion)
    for dispute_id in new_requests(before.disputes, after.disputes):
        why = "charge disputed: respond at Stripe"
        about = {"order_id": order_id, "dispute_id": dispute_id, "dispute_status": after.disputes[dispute_id]}
        tools.report("ChargeDisputed", Cause.CHARGE_DISPUTED, why, intent, **about)


def _expire(order_id: str, payment: Payment, intent: StripeIntent, tools: Tools) -> bool:
    """Cancel the PaymentIntent first: the customer's page could still confirm it. Stripe decides the race."""
    canceled = _intent_of(tools.stripe.cancel(intent.payment_intent_id, CancelReason.ABANDONED))
    if canceled is None or canceled.is_open:
        raise EventDeferred("an expired PaymentIntent could not be canceled")
    return correct(order_id, payment, with_what_followed(canceled, payment, tools), tools)


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
        tools.report(f"Discrepancy.{twice.name}", Cause.MONEY_DIFFERS, twice, intent, order_id=order_id)
    if not tools.payments.recover(
        order_id, intent, charged_at=charged_at, review=review, correlation_id="recovered", now=now
    ):
        raise RowChanged("there is a row by now")


def _write(payment: Payment, final: Finalize, tools: Tools) -> None:
    instruments = tools.instruments
    if not tools.payments.finalize_if_unchanged(payment, final, now=instruments.now()):
        raise RowChanged("the row has changed since it was read")
    instruments.count(f"Reconciled.{final.state}")
    count_end(instruments, payment, final.state)
    about: dict[str, Any] = {**payment.log_fields, "payment_intent_id": final.payment_intent_id, "state": final.state}
    instruments.log("payment finalized as Stripe shows it", **about)


# ---------------------------------------------------------------- what Stripe shows now


def retrieve_or_none(payment_intent_id: str, tools: Tools) -> StripeIntent | None:
    """The PaymentIntent as it is now; None if our Stripe account has none of that id."""
    return _intent_of(tools.stripe.retrieve(payment_intent_id))


def look_back(intent: StripeIntent, tools: Tools) -> AfterCharge:
    """What followed the charge of a PaymentIntent that succeeded."""
    try:
        return tools.stripe.after_charge(intent, before_each=tools.require_time)
    except ReleaseLease as release:
        raise EventDeferred(release.why) from release


def _intent_of(response: StripeResponse[StripeIntent]) -> StripeIntent | None:
    if response.failure is None:
        return response.found
    if response.failure.kind is ResponseKind.NOT_FOUND:
        return None
    raise EventDeferred(response.failure.kind, cause=ANSWERS[response.failure.kind].charge_alarm)
