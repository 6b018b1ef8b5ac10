"""Applies one of Stripe's events: compares it with our row, asks Stripe if they differ, and corrects the row.

PaymentIntentEvent    the payment's state            reconcile.py
ChargeRefundedEvent   the payment's refunded sum     also falls, when a refund fails
DisputeEvent          the payment's disputes         of the PaymentIntent, as Stripe lists them by now
FraudEvent            whether it may be fraud        likewise
RefundEvent           the refund's state             a bank may return a refund days later

Applying is idempotent, and independent of the order of events. An event that says what its row says already costs no
request to Stripe, but for those of disputes and fraud. So each may be delivered several times, and the scheduled run
reads all of them once more.

While a worker has the row's lease, an event of its PaymentIntent changes nothing. Nothing is lost: the worker's message
is not acknowledged before the row is finalized, and the scheduled run reads the same event minutes later.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

import stripe

from onecharge.contract.refunds import RefundState
from onecharge.payments.after_charge import EARLY_FRAUD_WARNING, REVIEW, AfterCharge
from onecharge.payments.charge_rules import Payment, StripeIntent
from onecharge.payments.reconcile import (
    TRIES,
    reconcile_event,
    recover_row,
    report_after_charge,
    retrieve,
)
from onecharge.payments.refund_rules import (
    FinalizeRefund,
    FoundRefund,
    FrozenRefund,
    Refund,
    alarm_of_pending,
    refund_id_of_canceled_order,
)
from onecharge.payments.stripe_events import (
    WARNING_CREATED,
    ChargeRefundedEvent,
    DisputeEvent,
    EventDeferred,
    FraudEvent,
    PaymentIntentEvent,
    RefundEvent,
    StripeEvent,
)
from onecharge.payments.stripe_gateway import NoSuchPaymentIntent
from onecharge.payments.stripe_responses import ResponseKind, classify
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause

REFUND_ID_PATTERN = r"rfd_[0-9a-f]{32}"


def apply_event(event: StripeEvent, tools: Tools) -> None:
    """Apply one event. Raises reconcile.OUTAGES: it has to be delivered again."""
    match event:
        case PaymentIntentEvent():
            reconcile_event(event, tools)
        case ChargeRefundedEvent():
            _record_refunded(event, _order_of(event, tools), tools)
        case DisputeEvent() | FraudEvent():
            _record_doubts(event, tools)
        case RefundEvent():
            order_id = event.order_id
            if event.has_failed:
                order_id = _order_of(event, tools)
                # First: once the refund's own row says FAILED, nothing else lowers the sum.
                _record_refunded(event, order_id, tools)
            _correct_refund(event, order_id, tools)


# ---------------------------------------------------------------- the payment's refunds and disputes, and fraud


def _record_refunded(event: ChargeRefundedEvent | RefundEvent, order_id: str | None, tools: Tools) -> None:
    """Write the sum that Stripe shows as refunded.

    It is read once more after each write: another event's handler may have read a newer sum meanwhile, and found
    nothing to write.
    """
    payment = _row_of(event, order_id, tools)
    told = event.amount_refunded_minor if isinstance(event, ChargeRefundedEvent) else None
    if payment and payment.amount_refunded_minor == told:
        return
    for _ in range(TRIES):
        if payment is None:
            return
        # The row was read first: what Stripe shows is newer than the revision that it is written on.
        amount_refunded_minor = tools.stripe.amount_refunded(str(payment.payment_intent_id))
        if amount_refunded_minor == payment.amount_refunded_minor:
            return
        if tools.payments.record_refunded(payment, amount_refunded_minor, now=tools.instruments.now()):
            tools.instruments.count("ChargeRefunded")
        payment = _row_of(event, order_id, tools)
    raise EventDeferred("the row kept changing")


def _record_doubts(event: DisputeEvent | FraudEvent, tools: Tools) -> None:
    """Write the PaymentIntent's disputes, or whether it may be fraud. The alarm of what is new precedes the write."""
    order_id = _order_of(event, tools)
    gateway, payment_intent_id = tools.stripe, str(event.payment_intent_id)
    for _ in range(TRIES):
        payment = _row_of(event, order_id, tools)
        if order_id is None:
            return
        before = payment.after_charge if payment else AfterCharge()
        # The row was read first, as above.
        if isinstance(event, FraudEvent):
            intent = retrieve(payment_intent_id, tools)
            suspicion = _suspicion_of(event, intent, before, tools) if intent else before.fraud_suspicion
            after = replace(before, fraud_suspicion=suspicion)
        else:
            after = replace(before, disputes=gateway.disputes(payment_intent_id))
        if payment and after == before:
            return
        report_after_charge(before, after, tools, **_log_fields(event, order_id))
        if payment is None:
            return
        tools.payments.record_after_charge(payment, after, now=tools.instruments.now())
    raise EventDeferred("the row kept changing")


def _suspicion_of(event: FraudEvent, intent: StripeIntent, before: AfterCharge, tools: Tools) -> str | None:
    """As Stripe shows it. If the API key may not ask, as the event says, with an alarm: no other event waits for it."""
    try:
        return tools.stripe.fraud_suspicion(intent)
    except stripe.PermissionError as error:
        if classify(error).kind is not ResponseKind.ACCOUNT:
            raise
        why = "the API key may not read early fraud warnings, or reviews"
        tools.report("FraudNotRead", Cause.STRIPE_ACCOUNT, why, **_log_fields(event, intent.order_id))
        is_warned_of = event.type == WARNING_CREATED or before.fraud_suspicion == EARLY_FRAUD_WARNING
        return EARLY_FRAUD_WARNING if is_warned_of else REVIEW if intent.review else None


def _order_of(event: StripeEvent, tools: Tools) -> str | None:
    """The order that the event is about; None if it is not ours."""
    if event.order_id is None and event.payment_intent_id is not None:
        # A dispute does not name its order, nor does a refund that was made by hand; the PaymentIntent does.
        try:
            order_id = tools.stripe.order_of(event.payment_intent_id)
        except NoSuchPaymentIntent:
            # The API key may be another account's for a while.
            tools.instruments.count("EventUnknownToStripe")
            raise EventDeferred("Stripe has no such PaymentIntent", cause=Cause.STRIPE_ACCOUNT) from None
    else:
        order_id = event.order_id
    if order_id is None:
        tools.instruments.count("ChargeEventIgnored")
    return order_id


def _row_of(event: StripeEvent, order_id: str | None, tools: Tools) -> Payment | None:
    """The order's row, if its PaymentIntent is the event's. A lost one is written again, by the charge's own rules."""
    if order_id is None:
        return None
    payment = tools.payments.read(order_id)
    if payment is None and event.payment_intent_id is not None:
        recover_row(order_id, event.payment_intent_id, tools)
        payment = tools.payments.read(order_id)
    if payment is not None and payment.payment_intent_id == event.payment_intent_id:
        return payment
    if payment is None:
        tools.instruments.count("ChargeEventIgnored")
        about = _log_fields(event, order_id)
        tools.instruments.log("event ignored: its payment has no row", alarm=None, **about)
        return None
    # The order shows the refunds and the dispute of its own PaymentIntent only.
    tools.instruments.count("ChargeEventOfAnotherPaymentIntent")
    message = "event ignored: the payment's row names another PaymentIntent"
    tools.instruments.logger.warning(message, extra=_log_fields(event, order_id))
    return None


def _log_fields(event: StripeEvent, order_id: str | None) -> dict[str, object]:
    return {
        "order_id": order_id,
        "event_id": event.event_id,
        "event_type": event.type,
        "payment_intent_id": event.payment_intent_id,
    }


# ---------------------------------------------------------------- a refund


class RefundDiscrepancy(StrEnum):
    """How Stripe's refunds of one refund id differ from its row."""

    NONE = "row and Stripe agree, or a worker will finalize the row"
    RETURNED = "it failed, whatever the row says: the row becomes FAILED"
    LOST_ROW = "it failed, and there is no row: the row is written again as FAILED"
    MADE_AFTER_FAILED = "the row says FAILED, and Stripe shows a refund"
    SEVERAL = "several refunds of one id"
    PENDING = "Stripe says another reason why it is pending, or sends it by now: the row says so"


_REFUND_ALARMS = {
    RefundDiscrepancy.RETURNED: Cause.REFUND_FAILED,
    RefundDiscrepancy.LOST_ROW: Cause.ROW_LOST,
    RefundDiscrepancy.MADE_AFTER_FAILED: Cause.MONEY_DIFFERS,
    RefundDiscrepancy.SEVERAL: Cause.MONEY_DIFFERS,
}


def find_refund_discrepancy(refund: Refund | None, found: Sequence[FoundRefund]) -> RefundDiscrepancy:
    """Compare the row with Stripe's refunds of its id: with all of them, so the order of events does not matter.

    A PENDING row takes the failure as well: its worker may have read `pending` before, and would write SUCCEEDED after
    the only event that says otherwise.
    """
    live = [each for each in found if each.status not in ("failed", "canceled")]
    if len(found) > 1:
        return RefundDiscrepancy.SEVERAL
    if live:
        if refund is not None and refund.state is RefundState.FAILED:
            return RefundDiscrepancy.MADE_AFTER_FAILED
        is_made = refund is not None and refund.state is RefundState.SUCCEEDED
        is_other = is_made and refund and refund.pending_reason != live[0].pending_reason
        return RefundDiscrepancy.PENDING if is_other else RefundDiscrepancy.NONE
    if not found:
        return RefundDiscrepancy.NONE
    if refund is None:
        return RefundDiscrepancy.LOST_ROW
    is_unaware = refund.state in (RefundState.PENDING, RefundState.SUCCEEDED)
    return RefundDiscrepancy.RETURNED if is_unaware else RefundDiscrepancy.NONE


def _correct_refund(event: RefundEvent, order_id: str | None, tools: Tools) -> None:
    """Correct the row of the event's refund by Stripe's list of refunds."""
    refund_id = event.refund_id or ""
    if order_id is None or event.order_id is None or not re.fullmatch(REFUND_ID_PATTERN, refund_id):
        tools.instruments.count("RefundEventIgnored")
        if event.has_failed and order_id:
            # The runbook lets a person refund what a canceled order has paid: its customer has no money back.
            about = {"stripe_refund_id": event.stripe_refund_id, **_log_fields(event, order_id)}
            tools.instruments.log("a refund made by hand failed", alarm=Cause.REFUND_FAILED, **about)
        return
    for _ in range(TRIES):
        refund = tools.refunds.read(order_id, refund_id)
        if refund and _says_the_same(refund, event):
            return
        found = _find(event, refund, tools)
        if refund is None and found[0].created + RETENTION_SECONDS <= tools.instruments.clock():
            tools.instruments.count("RefundEventIgnored")
            return  # Its row has expired, and was not lost.
        discrepancy = find_refund_discrepancy(refund, found)
        tools.instruments.count(f"RefundDiscrepancy.{discrepancy.name}")
        tools.instruments.log(
            f"refund event: {discrepancy}",
            alarm=_REFUND_ALARMS.get(discrepancy) or _alarm_of_change(discrepancy, found),
            refund_id=refund_id,
            stripe_refund_id=event.stripe_refund_id,
            **_log_fields(event, order_id),
        )
        match discrepancy:
            case RefundDiscrepancy.RETURNED | RefundDiscrepancy.LOST_ROW:
                is_written = _write_failed(event, refund, found[0], tools)
            case RefundDiscrepancy.PENDING if refund:
                now = tools.instruments.now()
                is_written = tools.refunds.record_pending_reason(refund, found[0].pending_reason, now=now)
            case _:
                return
        if is_written:
            return
    raise EventDeferred("the row kept changing")


def _alarm_of_change(discrepancy: RefundDiscrepancy, found: Sequence[FoundRefund]) -> Cause | None:
    return alarm_of_pending(found[0].pending_reason) if discrepancy is RefundDiscrepancy.PENDING else None


def _says_the_same(refund: Refund, event: RefundEvent) -> bool:
    if event.has_failed:
        return (refund.state, refund.stripe_refund_id) == (RefundState.FAILED, event.stripe_refund_id)
    said = RefundState.SUCCEEDED, event.stripe_refund_id, event.pending_reason
    return (refund.state, refund.stripe_refund_id, refund.pending_reason) == said


def _find(event: RefundEvent, refund: Refund | None, tools: Tools) -> list[FoundRefund]:
    payment_intent_id = refund.request.payment_intent_id if refund else event.payment_intent_id
    if payment_intent_id is None:
        raise EventDeferred("neither the row nor the event names a PaymentIntent")
    found = tools.stripe.find_refunds(payment_intent_id, str(event.refund_id))
    if event.stripe_refund_id not in [each.stripe_refund_id for each in found]:
        # The API key may be another account's for a while.
        raise EventDeferred("Stripe does not show the refund that the event names")
    return found


def _write_failed(event: RefundEvent, refund: Refund | None, returned: FoundRefund, tools: Tools) -> bool:
    """Write the refund as FAILED; False if the row has changed since it was read."""
    code = returned.failure_reason or returned.status
    final = FinalizeRefund(RefundState.FAILED, returned.stripe_refund_id, code, alarm=Cause.REFUND_FAILED)
    now = tools.instruments.now()
    if refund is not None:
        return tools.refunds.finalize_unclaimed(refund, final, now=now)
    order_id, payment_intent_id = str(event.order_id), str(event.payment_intent_id)
    request = FrozenRefund(
        order_id=order_id,
        refund_id=str(event.refund_id),
        attempt=returned.attempt,
        amount_minor=returned.amount_minor,
        currency=returned.currency,
        payment_intent_id=payment_intent_id,
        requested_at=returned.created,
    )
    is_internal = request.refund_id == refund_id_of_canceled_order(order_id, payment_intent_id)
    return tools.refunds.recover(request, final, correlation_id=event.event_id, now=now, is_internal=is_internal)
