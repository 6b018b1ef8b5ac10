"""One order's story: what happened, its state everywhere, and what to do about it. Pure.

    facts ─► story ─┬─► explain prints it
                    └─► the console shows it, in lanes

Both show what is told here, and nothing of their own about the order: they never disagree.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import starmap
from typing import Any, NamedTuple

from onecharge.contract.money import as_money
from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.payments.payment_intents import metadata_of
from ops.facts import Facts, IntentFacts
from ops.findings import Finding, find

CREATE, CONFIRM, REFUND = "create", "confirm", "refund"
"""Requests to Stripe, as `Event.logged` names them."""


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    at: float
    """Epoch seconds; most of them are whole."""
    where: str
    """orders, payments, stripe, a function, or a DLQ."""
    what: str
    logged: str = ""
    """The message of the log line that tells the same to the millisecond, or the request to Stripe; if there is one."""
    tone: str = "plain"
    """money: a charge that succeeded; failed: a person has to act, as after a dispute."""
    details: Mapping[str, Any] = field(default_factory=dict)


class State(NamedTuple):
    """What one service, or Stripe, has of the order or of a refund."""

    where: str
    state: str
    more: str = ""


@dataclass(frozen=True)
class Story:
    """All that there is to tell about one order."""

    order_id: str
    now: int
    """When it is told, in epoch seconds."""
    states: Sequence[State]
    events: Sequence[Event]
    """The earliest first; within a second, causes before effects."""
    findings: Sequence[Finding]
    charges: int | None
    """Charges that succeeded, by Stripe's ledger; None if Stripe does not answer."""
    is_paid: bool
    omitted: Sequence[str] = ()
    """What was not read to its end."""


def story(facts: Facts) -> Story:
    # Stripe's times and the rows' are whole seconds: within one, events stay in the order of this list.
    events = [*_of_order(facts), *_of_claim(facts)]
    events += [event for intent in facts.stripe.intents for event in _of_intent(intent)]
    events += [
        *sorted(starmap(_of_line, facts.lines), key=lambda event: event.at),
        *_of_end(facts),
        *_of_refunds(facts),
    ]
    for letter in facts.dead_letters:
        what = f"{letter.event_type or 'a message that is not an event'} was sent here: {letter.reason}"
        events.append(Event(int(letter.sent_at), letter.dlq, what))
    charges = [charge for intent in facts.stripe.intents for charge in intent.charges if charge.status == "succeeded"]
    return Story(
        order_id=facts.order_id,
        now=facts.now,
        states=list(_states(facts)),
        events=sorted(events, key=lambda event: int(event.at)),
        findings=find(facts),
        charges=None if facts.stripe.failure else len(charges),
        is_paid=facts.order is not None and facts.order.status is OrderStatus.PAID,
        omitted=facts.omitted,
    )


# ---------------------------------------------------------------- its state


def _states(facts: Facts) -> Iterator[State]:
    if order := facts.order:
        money = as_money(order.amount_minor, order.currency)
        yield State("orders", order.status, f"attempt {order.attempt}, {order.payment_method}, {money}")
    else:
        yield State("orders", "unreadable" if facts.order_error else "no item")
    if row := facts.payment:
        yield State("payments", row.state, f"attempt {row.attempt}, {row.payment_intent_id or 'no PaymentIntent'}")
    else:
        yield State("payments", "no row")
    for each, intent in ((each, each.intent) for each in facts.stripe.intents):
        money = as_money(intent.amount_minor, intent.currency)
        back = f", refunded {as_money(each.refunded_minor, intent.currency)} of {money}" if each.refunded_minor else ""
        yield State(intent.payment_intent_id, intent.status, money + back)
    if not facts.stripe.intents:
        yield State("stripe", "unknown" if facts.stripe.failure else "no PaymentIntent")
    for refund in facts.refunds:
        yield State(refund.refund_id, refund.status, as_money(refund.amount_minor, refund.currency))


# ---------------------------------------------------------------- what happened


def _of_order(facts: Facts) -> Iterator[Event]:
    if order := facts.order:
        what, item = f"placed: {as_money(order.amount_minor, order.currency)}", order.model_dump(mode="json")
        yield Event(_epoch(order.placed_at), "orders", what, "order placed", details=item)
        since = order.waiting_since
        if order.status is OrderStatus.PENDING and order.attempt > 1:
            what = f"attempt {order.attempt} was asked for, with {order.payment_method}"
            yield Event(since.timestamp(), "orders", what, "attempt made")
        if order.cancel_requested_at:
            at = _epoch(order.cancel_requested_at)
            yield Event(at, "orders", "its cancellation was requested", "cancellation requested")


def _of_claim(facts: Facts) -> Iterator[Event]:
    if row := facts.payment:
        if row.released_at:
            yield Event(row.released_at, "payments", "an operator released it: Stripe had nothing of the order")
        what = f"attempt {row.attempt} was claimed, with {row.payment_method or 'no card: the row was recovered'}"
        yield Event(row.claimed_at, "payments", what, "payment claimed")


def _of_end(facts: Facts) -> Iterator[Event]:
    row = facts.payment
    if row and row.finalized_at and row.state is not PaymentState.PENDING:
        what = f"attempt {row.attempt} became {row.state}" + (f": {row.reason}" if row.reason else "")
        yield Event(row.finalized_at, "payments", what, "payment finalized")


def _of_intent(each: IntentFacts) -> Iterator[Event]:
    # The SDK's objects have no attribute for what a response leaves out.
    intent = each.intent
    ids = {"payment_intent": intent.payment_intent_id}
    what = f"{intent.payment_intent_id} was created: {as_money(intent.amount_minor, intent.currency)}"
    yield Event(intent.created, "stripe", what, CREATE, details=ids)
    for charge in each.charges:
        is_paid, code = charge.status == "succeeded", getattr(charge, "failure_code", None)
        why = getattr(getattr(charge, "outcome", None), "reason", None) or code
        what = f"{'CHARGED' if is_paid else f'charge {charge.status}'}: {as_money(charge.amount, intent.currency)}, "
        what += f"{charge.id} of {intent.payment_intent_id}" + (f", {why}" if why and not is_paid else "")
        details = {"charge": charge.id, **ids, "failure_code": code}
        yield Event(charge.created, "stripe", what, CONFIRM, "money" if is_paid else "plain", details)
    if each.canceled_at is not None:
        what = f"{intent.payment_intent_id} was canceled: {intent.cancellation_reason or 'no reason'}"
        yield Event(each.canceled_at, "stripe", what, details=ids)
    for dispute in each.disputes:
        what = f"{dispute.id} of {as_money(dispute.amount, intent.currency)}, {dispute.reason}, is {dispute.status}"
        yield Event(dispute.created, "stripe", what, tone="failed", details=ids)


def _of_refunds(facts: Facts) -> Iterator[Event]:
    for refund in facts.refunds:
        by = f", by {refund.requested_by}" if refund.requested_by else ""
        what = f"{refund.refund_id} was requested: {as_money(refund.amount_minor, refund.currency)}{by}"
        what += f": {refund.reason}" if refund.reason else ""
        ids = {"refund_id": refund.refund_id}
        yield Event(_epoch(refund.requested_at), "orders", what, "refund requested", details=ids)
    for intent, made in ((each.intent, made) for each in facts.stripe.intents for made in each.refunds):
        whose = metadata_of(made).get("refund_id") or "made by hand"
        reason = getattr(made, "failure_reason", None) or getattr(made, "pending_reason", None)
        what = f"{made.id} ({whose}) of {as_money(made.amount, intent.currency)} is {made.status}"
        ids = {"payment_intent": intent.payment_intent_id, "refund_id": whose}
        yield Event(made.created, "stripe", f"{what}, {reason}" if reason else what, REFUND, details=ids)


_SAID_OF_A_LINE = "event_type type state status refund_id why cause code wait_seconds replayed".split()


def _of_line(at: float, fields: Mapping[str, Any]) -> Event:
    what = str(fields.get("message") or f"stripe request: {fields.get('endpoint')}")
    more = ", ".join(f"{name} {fields[name]}" for name in _SAID_OF_A_LINE if fields.get(name) is not None)
    tone = "failed" if fields.get("level") == "ERROR" else "plain"
    return Event(at, str(fields.get("service")), f"{what}: {more}" if more else what, tone=tone, details=fields)


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
