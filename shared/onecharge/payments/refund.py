"""The refund, on one page: from its message to its outcome, by the rules of docs/protocol.md, "The refund".

read the row ─► read the charge ─► list all refunds ─┬─► it is there, or was refused ─► tell ─► Done
                                                     └─► it is not ─► write that it is sent ─► send ─┬─► made ─► tell
                                                                                                     ├─► refused ─► tell
                                                                                                     └─► wait

No table of ours has the state of a refund: Stripe's list of the PaymentIntent's refunds is the state. The row says only
which requests Stripe has not answered, and what it has refused. Only this module sends requests that refund.
"""

import re
from datetime import UTC, datetime

import stripe

from onecharge.contract.events import EventType
from onecharge.contract.refunds import (
    REFUND_ID_PATTERN,
    RefundOutcome,
    RefundOutcomeEvent,
    RefundOutcomeType,
    RefundRequested,
    RefundRequestedEvent,
)
from onecharge.contract.states import PaymentState
from onecharge.payments.charge import retrieve
from onecharge.payments.refund_rules import (
    OVERDUE_SECONDS,
    TOO_LITTLE_BALANCE,
    UNCLEAR,
    Refused,
    Send,
    Sent,
    StripeRefund,
    Wait,
    after_refusal,
    decide,
    own,
    refusal_of,
)
from onecharge.payments.rows import Payment, ReleaseLease
from onecharge.payments.stripe_events import EventDeferred, StripeEvent
from onecharge.payments.stripe_responses import classify
from onecharge.payments.sync import TRIES, sync_row
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.consumer import BackOff, Disposition, Done, PoisonMessage

LISTED_SECONDS = 24 * 3600
"""How old an event may be whose refund Stripe does not list. A wrong API key is corrected sooner."""


def refund(event: RefundRequestedEvent, tools: Tools) -> Disposition:
    """Handle one delivery: however many a refund has, together they make it once. Raises PoisonMessage."""
    wanted, now = event.data, tools.now()
    row = tools.payments.read(wanted.order_id)
    if row is None or row.payment_intent_id is None or row.state is not PaymentState.SUCCEEDED:
        _log(event, "refund waits: its payment's row is missing, or not SUCCEEDED", tools, alarm=Cause.ROW_LOST)
        return BackOff()
    if wanted.currency != row.request.currency or wanted.amount_minor > row.request.amount_minor:
        raise PoisonMessage("data.amount_minor: more than was charged, or other money")
    try:
        charged = retrieve(row.payment_intent_id, tools).amount_refunded_minor
        listed = list_refunds(row.payment_intent_id, tools)
        sent = row.refunds_sent.get(wanted.refund_id, Sent())
        found = decide(wanted.refund_id, listed, amount_refunded_minor=charged, sent=sent, now=now)
        if isinstance(found, Send):
            found = send(event, row, tools)
        if isinstance(found, Wait):
            raise ReleaseLease(found.why)
        # First: what the order service has left to refund is counted from the row's total.
        row = synced(row, tools)
        about = wanted if isinstance(found, Refused) else found
        tell(row, wanted.refund_id, about, found, tools, seen_at=now, correlation_id=event.correlationid)
    except (ReleaseLease, EventDeferred) as release:
        is_overdue = now - wanted.requested_at.timestamp() >= OVERDUE_SECONDS
        alarm = release.alarm or (Cause.OVERDUE if is_overdue else None)
        tools.count("Refund.waiting")
        _log(event, "refund not finished", tools, alarm=alarm, why=str(release))
        return BackOff()
    return Done()


def list_refunds(payment_intent_id: str, tools: Tools) -> list[StripeRefund]:
    """All of the PaymentIntent's refunds, the newest first. Raises ReleaseLease."""
    tools.require_time()
    try:
        return tools.refunds.list(payment_intent_id)
    except stripe.StripeError as error:
        failure = classify(error)
        raise ReleaseLease(failure.kind, alarm=failure.alarm) from error


def send(event: RefundRequestedEvent, row: Payment, tools: Tools) -> StripeRefund | Refused | Wait:
    """Create the refund, once the row says so: a worker that has read the row before cannot send it any more.

    Raises ReleaseLease.
    """
    refund_id, sent_at = event.data.refund_id, tools.now()
    tools.wait_for_token(tools.rate.refunds.take)
    if not _write_sent(row, refund_id, row.refunds_sent.get(refund_id, Sent()).before(sent_at), tools):
        raise ReleaseLease("the payment's row has changed since it was read")
    made = tools.refunds.create(event.data, str(row.payment_intent_id))
    if isinstance(made, StripeRefund):
        return made
    code = refusal_of(made)
    if made.kind not in UNCLEAR:
        sent = _answered(event, sent_at, code, tools)
        if code and sent:
            return after_refusal(sent, sent_at)
    why = "Stripe's balance is too low" if made.code in TOO_LITTLE_BALANCE else made.kind
    raise ReleaseLease(why, alarm=None if made.code in TOO_LITTLE_BALANCE else made.alarm)


def _answered(event: RefundRequestedEvent, sent_at: int, code: str | None, tools: Tools) -> Sent | None:
    """Write the answer to the request of this time to the row; None if that was not possible."""
    for _ in range(TRIES):
        row = tools.payments.read(event.data.order_id)
        if row is None:
            break
        sent = row.refunds_sent.get(event.data.refund_id, Sent()).answered(sent_at, code)
        if _write_sent(row, event.data.refund_id, sent, tools):
            return sent
    return None


def _write_sent(row: Payment, refund_id: str, sent: Sent, tools: Tools) -> bool:
    refunds_sent = {**row.refunds_sent, refund_id: sent}
    given = {each: {"open": list(known.open), "code": known.code} for each, known in refunds_sent.items()}
    return tools.payments.write_if_unchanged(row, {"refunds_sent": given}, now=tools.now())


def synced(row: Payment, tools: Tools) -> Payment:
    """The row, once it says what Stripe says. Raises sync.OUTAGES."""
    order_id = row.request.order_id
    if before := tools.payments.read(order_id):
        sync_row(order_id, before, None, str(row.payment_intent_id), tools)
        if after := tools.payments.read(order_id):
            return after
    raise EventDeferred("the payment's row is gone", alarm=Cause.ROW_LOST)


def tell(
    row: Payment,
    refund_id: str,
    money: RefundRequested | StripeRefund,
    found: StripeRefund | Refused,
    tools: Tools,
    *,
    seen_at: int,
    correlation_id: str = "",
) -> None:
    """Publish the outcome, with Stripe's total of the payment's refunds. Raises sync.OUTAGES.

    Args:
        row: as it is since Stripe was asked.
        seen_at: when that was; epoch seconds.
    """
    made = found if isinstance(found, StripeRefund) else None
    code = found.code if isinstance(found, Refused) else found.failure_code
    outcome = RefundOutcome(
        order_id=row.request.order_id,
        attempt=row.attempt,
        refund_id=refund_id,
        amount_minor=money.amount_minor,
        currency=money.currency,
        stripe_refund_id=made.stripe_refund_id if made else None,
        failure_code=code,
        pending_reason=made.pending_reason if made else None,
        amount_refunded_minor=row.amount_refunded_minor,
        dispute_status=row.dispute_status,
        revision=row.revision,
        occurred_at=datetime.fromtimestamp(seen_at, UTC),
    )
    kind: RefundOutcomeType = EventType.REFUND_FAILED if code else EventType.REFUND_SUCCEEDED
    tools.publish(RefundOutcomeEvent.of(kind, outcome, correlation_id=correlation_id or row.correlation_id))
    tools.count(f"Refund.{kind.rpartition('.')[2]}")
    waits_for_balance = outcome.pending_reason == "insufficient_funds"
    about = {**row.log_fields, "refund_id": refund_id, "type": kind, "code": code}
    tools.log("refund told", alarm=Cause.BALANCE_TOO_LOW if waits_for_balance else None, **about)


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
    if found is None and now - event.created < LISTED_SECONDS:
        raise EventDeferred("Stripe does not list the refund that the event names")
    if found is None:
        tools.alarm(
            Cause.MONEY_DIFFERS, "a person has edited a refund's metadata", row, None, refund_id=shown.refund_id
        )
        return
    tell(row, str(shown.refund_id), found, found, tools, seen_at=now)


def _log(event: RefundRequestedEvent, message: str, tools: Tools, *, alarm: Cause | None, **details: object) -> None:
    about = {"order_id": event.data.order_id, "refund_id": event.data.refund_id, "attempt": event.data.attempt}
    tools.log(message, alarm=alarm, correlation_id=event.correlationid, **about, **details)
