"""The refund, on one page: from its message to its outcome, by the rules of docs/protocol.md, "The refund".

read the row ─► list all refunds ─┬─► it is there, or was refused ─► tell ─► Done
                                  └─► it is not ─► write that it is sent ─► send ─┬─► made ─► tell ─► Done
                                                                                  └─► wait

Stripe's list of the PaymentIntent's refunds is the state: OrderRefunds only has what was told. The payment's row says
whether Stripe has answered the requests, and what it has refused. Only this module sends requests that refund.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime
from secrets import token_hex

import stripe

from onecharge.contract.refund_events import REFUND_ID_PATTERN, RefundOutcome, RefundOutcomeEvent, RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.payments_table import Payment, WriteRefused
from onecharge.payments.refund_rules import OVERDUE_SECONDS, UNCLEAR, Sent, StripeRefund, decide, refusal_of
from onecharge.payments.stripe_errors import classify
from onecharge.payments.stripe_events import StripeEvent
from onecharge.payments.stripe_responses import Deferred
from onecharge.payments.sync import OUTAGES, TRIES, cause_of, sync_row
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage
from onecharge.runtime.secrets import logged_as


def refund(event: RefundRequestedEvent, tools: Tools) -> Disposition:
    """Handle one delivery: however many a refund has, together they make it once. Raises PoisonMessage."""
    wanted, now = event.data, tools.now()
    try:
        row = tools.payments.read(wanted.order_id)
        if row is None or row.payment_intent_id is None or row.state is not PaymentState.SUCCEEDED:
            raise Deferred("the payment's row is missing, or not SUCCEEDED", alarm=Cause.ROW_LOST)
        if wanted.currency != row.request.currency or wanted.amount_minor > row.request.amount_minor:
            raise PoisonMessage("data.amount_minor: more than was charged, or other money")
        tools.require_time()
        listed = tools.stripe.list_refunds(row.payment_intent_id)
        sent = row.refunds_sent.get(wanted.refund_id, Sent())
        found = decide(wanted, listed, sent=sent, now=now) or send(event, row, sent, tools, now=now)
        # First: what the order service has left to refund is counted from the row's total.
        synced = sync_row(wanted.order_id, row.payment_intent_id, tools)
        if synced is None or (synced.request, synced.payment_intent_id) != (row.request, row.payment_intent_id):
            raise Deferred("the payment's row was lost meanwhile", alarm=Cause.ROW_LOST)
        tell(synced, found, tools, correlation_id=event.correlationid)
    except OUTAGES as error:
        overdue = Cause.OVERDUE if now - wanted.requested_at.timestamp() >= OVERDUE_SECONDS else None
        stopped = classify(error).deferred if isinstance(error, stripe.StripeError) else error
        why = stopped.why if isinstance(stopped, Deferred) else logged_as(stopped)
        about = {**event.log_fields, "refund_id": wanted.refund_id, "why": why}
        tools.log("refund not finished", alarm=cause_of(error) or overdue, **about)
        return BackOff()
    return Done()


def send(event: RefundRequestedEvent, row: Payment, before: Sent, tools: Tools, *, now: int) -> StripeRefund:
    """Create the refund, once the row says so: whoever has read the row before cannot send it. Raises Deferred."""
    wanted, name = event.data, token_hex(6)
    tools.wait_for_token(tools.rate.refunds.take)
    try:
        _write_sent(row, wanted.refund_id, before.once_more(name, now), tools)
    except WriteRefused as refused:
        # boto3 repeats a request whose answer was lost: what refuses this write may be this write.
        if not refused.row or name not in refused.row.refunds_sent.get(wanted.refund_id, Sent()).unanswered:
            raise Deferred("the payment's row has changed since it was read") from None
    made = tools.stripe.create_refund(wanted, str(row.payment_intent_id))
    if isinstance(made, StripeRefund):
        return made
    code = refusal_of(made)
    if made.kind not in UNCLEAR:
        _write_answer(event, name, code, tools)
    raise Deferred(f"Stripe refuses it ({code}), which a later delivery tells") if code else made.deferred


def _write_answer(event: RefundRequestedEvent, name: str, code: str | None, tools: Tools) -> None:
    """Take the request off the row, which others may write meanwhile; if it stays, the refund waits for 72 hours."""
    refund_id = event.data.refund_id
    for _ in range(TRIES):
        if row := tools.payments.read(event.data.order_id):
            with suppress(WriteRefused):
                answered = row.refunds_sent.get(refund_id, Sent()).answered(name, code)
                return _write_sent(row, refund_id, answered, tools)


def _write_sent(row: Payment, refund_id: str, sent: Sent, tools: Tools) -> None:
    """Raises WriteRefused: the row has changed since it was read."""
    given = {each: known._asdict() for each, known in {**row.refunds_sent, refund_id: sent}.items()}
    tools.payments.write_if_unchanged(row, {"refunds_sent": given}, now=tools.now())


def tell(row: Payment, found: StripeRefund, tools: Tools, *, correlation_id: str = "") -> None:
    """Publish the outcome, with Stripe's total by the row, which was synced since. Raises sync.OUTAGES."""
    outcome = RefundOutcome(
        order_id=row.request.order_id,
        attempt=row.attempt,
        refund_id=str(found.refund_id),
        amount_minor=found.amount_minor,
        currency=found.currency,
        stripe_refund_id=found.stripe_refund_id,
        failure_code=found.failure_code,
        amount_refunded_minor=row.amount_refunded_minor,
        dispute_status=row.dispute_status,
        revision=row.revision,
        occurred_at=datetime.fromtimestamp(tools.now(), UTC),
    )
    event = RefundOutcomeEvent.of(outcome, correlation_id=correlation_id or row.correlation_id)
    tools.publish(event)
    tools.count(f"Refund.{event.type.rpartition('.')[2]}")
    alarm = Cause.BALANCE_TOO_LOW if found.pending_reason == "insufficient_funds" else None
    about = {**row.log_fields, "refund_id": found.refund_id, "type": event.type, "code": found.failure_code}
    tools.log("refund told", alarm=alarm, **about)


def tell_later_word(order_id: str, stripe_refund_id: str, event: StripeEvent, tools: Tools) -> None:
    """Once the row is synced, tell again what became of the event's refund: a bank may return it. Raises OUTAGES."""
    tools.require_time()
    shown, row = tools.stripe.retrieve_refund(stripe_refund_id), tools.payments.read(order_id)
    is_ours = re.fullmatch(REFUND_ID_PATTERN, shown.refund_id or "")
    if is_ours and row and row.payment_intent_id == event.payment_intent_id:
        tell(row, shown, tools)
    elif shown.has_failed:
        about = {"order_id": order_id, "stripe_refund_id": shown.stripe_refund_id, "event_id": event.event_id}
        tools.log("a refund by hand, or of an old payment, failed", alarm=Cause.REFUND_FAILED, **about)
