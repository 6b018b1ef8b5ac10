"""Applies later changes at Stripe to the row.

    an event (webhook, reconcile) or a row (reconcile) ─► read the row ─► retrieve the PaymentIntent ─► find_difference
                                                             ▲                                                  │
                                       the row has changed ──┴── write, if the row is unchanged ◄── alarm ◄─────┘

An event is a hint, and may come late, several times, out of order or never. If the row shows what it says, Stripe is
not asked, except for a dispute or a refund, whose events do not name their order. Nothing is created or confirmed
here. A row that names another PaymentIntent, or none, is left alone.
"""

from contextlib import suppress

import stripe
from botocore.exceptions import BotoCoreError, ClientError

from onecharge.contract.states import PaymentState
from onecharge.payments.disputes import Dispute
from onecharge.payments.payments_table import TERMINAL, Payment, WriteRefused
from onecharge.payments.stripe_errors import classify
from onecharge.payments.stripe_events import StripeEvent
from onecharge.payments.stripe_responses import Deferred, ResponseKind, StripeIntent
from onecharge.payments.sync_rules import Difference, find_difference
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.aws import is_outage
from onecharge.runtime.secrets import SecretUnavailable


def sync(event: StripeEvent, tools: Tools) -> str | None:
    """Make the row of the event's payment say what Stripe says now. Idempotent.

    What is written was read at Stripe after the row: so an event that does not name its order is asked about twice.

    Returns the order's id; None if the event is of another shop. Raises OUTAGES.
    """
    intent: StripeIntent | None = None
    order_id, shop, is_dispute = event.order_id, event.shop, event.dispute is not None
    if is_dispute or event.stripe_refund_id is not None:
        # A dispute or a refund does not name its order.
        intent = tools.fetch_intent(event.payment_intent_id, is_disputed=is_dispute)
        order_id, shop = intent.order_id, intent.shop
    if order_id is None or shop != tools.shop:
        tools.count("EventOfAnotherShop")
        return None
    row = tools.payments.read(order_id)
    counting_id = intent.dispute.dispute_id if intent and intent.dispute else None
    if intent and event.dispute and event.dispute.dispute_id != counting_id:
        # A charge may have several disputes, and each needs a response; the row has only the one that counts. So this
        # alarm is raised each time that the event is read.
        _alarm_if_due(event.dispute, order_id, row, intent, tools)
    differs = _compare(row, intent, tools) is not None if intent else not _shows(row, event, tools)
    if differs:
        sync_row(order_id, event.payment_intent_id, tools, is_disputed=is_dispute)
    elif intent and is_dispute and row and (row.payment_intent_id != intent.payment_intent_id or row.state in TERMINAL):
        # A row that names another PaymentIntent, or is CANCELED, never shows it: each reading raises the alarm.
        report_dispute(order_id, row, intent, tools)
    return order_id


TRIES = 4
"""How often a row is compared that others keep writing, before the event is deferred."""


def sync_row(order_id: str, payment_intent_id: str, tools: Tools, *, is_disputed: bool = False) -> Payment | None:
    """Compare and write, again if the row has changed meanwhile; returns the row after it. Raises OUTAGES.

    The row is read first, so each write shows what Stripe says later than the write before it.
    """
    before: Payment | None = None
    for _ in range(TRIES):
        row = tools.payments.read(order_id)
        if before is not None and row is None:
            raise Deferred("the row was lost meanwhile: the next time it is written again")
        try:
            intent = tools.fetch_intent(payment_intent_id, is_disputed=is_disputed)
        except Deferred as deferred:
            if deferred.why == ResponseKind.NOT_FOUND and (row is None or row.payment_intent_id != payment_intent_id):
                return row  # Test data that was deleted.
            raise
        if row is None and intent.order_id is not None and intent.order_id != order_id:
            # A person has edited its metadata since the event: the order that it names now is compared.
            order_id = intent.order_id
            continue
        found, before = _compare(row, intent, tools), row
        if found is None:
            return row
        if found.expires:
            tools.cancel(intent, "abandoned")
            continue
        with suppress(WriteRefused):
            return _write(order_id, row, intent, found, tools)
    raise Deferred("the row kept changing")


def _write(order_id: str, row: Payment | None, intent: StripeIntent, found: Difference, tools: Tools) -> Payment | None:
    """Raise the alarm, then write; returns the row after it. Raises WriteRefused if it has changed since it was read.

    Once the row says what Stripe says, another event of the same change raises no alarm: so it comes first.
    """
    now = tools.now()
    if found.alarm and not found.changes and (latest := tools.payments.read(order_id)) != row:
        # A worker may have stored the id, and charged, between the two reads: then all is well.
        raise WriteRefused(latest)
    if found.alarm:
        tools.alarm(found.alarm, found.says, row, intent, order_id=order_id)
    report_dispute(order_id, row, intent, tools)
    if not found.changes:
        return row
    if row is None:
        return tools.payments.insert(order_id, found.changes, now=now)
    written = tools.payments.write_if_unchanged(row, found.changes, now=now)
    if state := found.changes.get("state"):
        tools.count(f"Payment.{state}")
    tools.log(found.says, **{**row.log_fields, "payment_intent_id": intent.payment_intent_id})
    return written


def report_dispute(order_id: str, row: Payment | None, intent: StripeIntent, tools: Tools) -> None:
    """Raise an alarm if the dispute that counts newly needs a response."""
    if intent.dispute and (row is None or row.dispute != intent.dispute):
        _alarm_if_due(intent.dispute, order_id, row, intent, tools)


def _alarm_if_due(dispute: Dispute, order_id: str, row: Payment | None, intent: StripeIntent, tools: Tools) -> None:
    if dispute.needs_response:
        about = {"order_id": order_id, "dispute_id": dispute.dispute_id, "dispute_status": dispute.status}
        tools.alarm(Cause.CHARGE_DISPUTED, "charge disputed: respond at Stripe", row, intent, **about)


def _compare(row: Payment | None, intent: StripeIntent, tools: Tools) -> Difference | None:
    seconds = tools.requires_action_seconds
    return find_difference(row, intent, shop=tools.shop, now=tools.now(), requires_action_seconds=seconds)


# ---------------------------------------------------------------- other events, and what stops the work


def _shows(row: Payment | None, event: StripeEvent, tools: Tools) -> bool:
    """Whether the row shows what the event says."""
    is_own = row is not None and row.payment_intent_id == event.payment_intent_id
    if event.intent is not None:
        is_paid = is_own and row is not None and row.state is PaymentState.SUCCEEDED
        return is_paid or _compare(row, event.intent, tools) is None
    told = event.amount_refunded_minor
    return row is not None and is_own and told is not None and row.amount_refunded_minor == told


OUTAGES = (Deferred, stripe.StripeError, BotoCoreError, ClientError, SecretUnavailable)
"""What may stop the work on an event or a row halfway: it has to be done again."""


def cause_of(error: Exception) -> Cause | None:
    """The alarm's cause if a person must act, else None."""
    if isinstance(error, Deferred):
        return error.alarm
    if isinstance(error, stripe.StripeError):
        return classify(error).alarm
    is_expected = is_outage(error) if isinstance(error, ClientError) else isinstance(error, OUTAGES)
    return None if is_expected else Cause.UNEXPECTED_ERROR
