"""The refund, on one page: from its message to its outcome, by the rules of docs/protocol.md, "The refund".

read the row ─► read the charge ─► list all refunds ─┬─► it is there, or was refused ─► tell ─► Done
                                                     └─► it is not ─► write that it is sent ─► send ─┬─► made ─► tell
                                                                                                     ├─► refused ─► tell
                                                                                                     └─► wait

Stripe's list of the PaymentIntent's refunds is the state: OrderRefunds only has what was told. The payment's row says
which requests Stripe has not answered, and what it has refused. Only this module sends requests that refund.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime

import stripe

from onecharge.contract.events import EventType
from onecharge.contract.refund_events import (
    REFUND_ID_PATTERN,
    RefundOutcome,
    RefundOutcomeEvent,
    RefundOutcomeType,
    RefundRequestedEvent,
)
from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rows import Payment, WriteRefused
from onecharge.payments.refund_rules import (
    OVERDUE_SECONDS,
    UNCLEAR,
    Sent,
    StripeRefund,
    after_refusal,
    decide,
    own,
    refusal_of,
)
from onecharge.payments.stripe_events import StripeEvent
from onecharge.payments.stripe_responses import Deferred, classify
from onecharge.payments.sync import TRIES, sync_row
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage

LISTED_SECONDS = 24 * 3600
"""How old an event may be whose refund Stripe does not list. A wrong API key is corrected sooner."""


def refund(event: RefundRequestedEvent, tools: Tools) -> Disposition:
    """Handle one delivery: however many a refund has, together they make it once. Raises PoisonMessage."""
    wanted, now = event.data, tools.now()
    about = {"refund_id": wanted.refund_id, **event.log_fields}
    row = tools.payments.read(wanted.order_id)
    if row is None or row.payment_intent_id is None or row.state is not PaymentState.SUCCEEDED:
        what = "refund waits: its payment's row is missing, or not SUCCEEDED"
        tools.log(what, alarm=Cause.ROW_LOST, **about)
        return BackOff()
    if wanted.currency != row.request.currency or wanted.amount_minor > row.request.amount_minor:
        raise PoisonMessage("data.amount_minor: more than was charged, or other money")
    try:
        charged = tools.retrieve(row.payment_intent_id).amount_refunded_minor
        listed = list_refunds(row.payment_intent_id, tools)
        sent = row.refunds_sent.get(wanted.refund_id, Sent())
        found = decide(wanted, listed, amount_refunded_minor=charged, sent=sent, now=now) or send(event, row, tools)
        if isinstance(found, Deferred):
            raise found
        # First: what the order service has left to refund is counted from the row's total.
        synced = sync_row(wanted.order_id, row.payment_intent_id, tools)
        if synced is None or (synced.request, synced.payment_intent_id) != (row.request, row.payment_intent_id):
            raise Deferred("the payment's row was lost meanwhile", alarm=Cause.ROW_LOST)
        tell(synced, found, tools, seen_at=now, correlation_id=event.correlationid)
    except Deferred as deferred:
        is_overdue = now - wanted.requested_at.timestamp() >= OVERDUE_SECONDS
        alarm = deferred.alarm or (Cause.OVERDUE if is_overdue else None)
        tools.log("refund not finished", alarm=alarm, **about, why=deferred.why)
        return BackOff()
    return Done()


def list_refunds(payment_intent_id: str, tools: Tools) -> list[StripeRefund]:
    """All of the PaymentIntent's refunds, the newest first. Raises Deferred."""
    tools.require_time()
    try:
        return tools.stripe.list_refunds(payment_intent_id)
    except stripe.StripeError as error:
        raise classify(error).deferred from error


def send(event: RefundRequestedEvent, row: Payment, tools: Tools) -> StripeRefund | Deferred:
    """Create the refund, once the row says so: a worker that has read the row before cannot send it any more.

    Raises Deferred.
    """
    wanted, sent_at = event.data, tools.now()
    tools.wait_for_token(tools.rate.refunds.take)
    try:
        _write_sent(row, wanted.refund_id, row.refunds_sent.get(wanted.refund_id, Sent()).before(sent_at), tools)
    except WriteRefused:
        raise Deferred("the payment's row has changed since it was read") from None
    made = tools.stripe.create_refund(wanted, str(row.payment_intent_id))
    if isinstance(made, StripeRefund):
        return made
    code = refusal_of(made)
    if made.kind not in UNCLEAR:
        sent = _answered(event, sent_at, code, tools)
        if code and sent:
            return after_refusal(wanted, sent, sent_at)
    return made.deferred


def _answered(event: RefundRequestedEvent, sent_at: int, code: str | None, tools: Tools) -> Sent | None:
    """Write the answer to the request of this time to the row; None if that was not possible."""
    for _ in range(TRIES):
        row = tools.payments.read(event.data.order_id)
        if row is None:
            break
        sent = row.refunds_sent.get(event.data.refund_id, Sent()).answered(sent_at, code)
        with suppress(WriteRefused):
            _write_sent(row, event.data.refund_id, sent, tools)
            return sent
    return None


def _write_sent(row: Payment, refund_id: str, sent: Sent, tools: Tools) -> None:
    given = {each: known._asdict() for each, known in {**row.refunds_sent, refund_id: sent}.items()}
    tools.payments.write_if_unchanged(row, {"refunds_sent": given}, now=tools.now())


def tell(row: Payment, found: StripeRefund, tools: Tools, *, seen_at: int, correlation_id: str = "") -> None:
    """Publish the outcome, with Stripe's total of the payment's refunds. Raises sync.OUTAGES.

    Args:
        row: as it is since Stripe was asked.
        seen_at: when that was; epoch seconds.
    """
    outcome = RefundOutcome(
        order_id=row.request.order_id,
        attempt=row.attempt,
        refund_id=str(found.refund_id),
        amount_minor=found.amount_minor,
        currency=found.currency,
        stripe_refund_id=found.stripe_refund_id,
        failure_code=found.failure_code,
        pending_reason=found.pending_reason,
        amount_refunded_minor=row.amount_refunded_minor,
        dispute_status=row.dispute_status,
        revision=row.revision,
        occurred_at=datetime.fromtimestamp(seen_at, UTC),
    )
    kind: RefundOutcomeType = EventType.REFUND_FAILED if found.has_failed else EventType.REFUND_SUCCEEDED
    tools.publish(RefundOutcomeEvent.of(kind, outcome, correlation_id=correlation_id or row.correlation_id))
    tools.count(f"Refund.{kind.rpartition('.')[2]}")
    alarm = Cause.BALANCE_TOO_LOW if found.pending_reason == "insufficient_funds" else None
    about = {**row.log_fields, "refund_id": found.refund_id, "type": kind, "code": found.failure_code}
    tools.log("refund told", alarm=alarm, **about)


def tell_later_word(order_id: str, event: StripeEvent, tools: Tools) -> None:
    """Tell again what became of the event's refund: a bank may return it days later. Raises sync.OUTAGES.

    The row is synced by now.
    """
    shown, row, now = event.refund, tools.payments.read(order_id), tools.now()
    if shown is None:
        return
    is_ours = re.fullmatch(REFUND_ID_PATTERN, shown.refund_id or "")
    if row is None or row.payment_intent_id != event.payment_intent_id or not is_ours:
        if shown.has_failed:
            about = {"order_id": order_id, "stripe_refund_id": shown.stripe_refund_id, "event_id": event.event_id}
            what = "of an old payment" if is_ours else "made by hand"
            tools.log(f"a refund {what} failed", alarm=Cause.REFUND_FAILED, **about)
        return
    found = own(str(shown.refund_id), list_refunds(event.payment_intent_id, tools))
    if found:
        tell(row, found, tools, seen_at=now)
    elif now - event.created < LISTED_SECONDS:
        raise Deferred("Stripe does not list the refund that the event names")
    else:
        what = "a person has edited a refund's metadata"
        tools.alarm(Cause.MONEY_DIFFERS, what, row, None, refund_id=shown.refund_id)
