"""One order's story: what happened, its state everywhere, and what to do about it. Pure.

    facts ─► story ─┬─► explain prints it
                    └─► the console shows it, in lanes

What our functions did is told by their log lines, what Stripe did by its objects.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, NamedTuple

from onecharge.contract.money import as_money
from onecharge.contract.states import OrderStatus
from onecharge.payments.payment_intents import metadata_of
from ops.facts import Facts, IntentFacts
from ops.findings import Finding, find

CREATE, CONFIRM, REFUND = "create", "confirm", "refund"
"""Requests to Stripe, as `Event.request` names them."""


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    at: float
    """Epoch seconds; Stripe's are whole."""
    where: str
    """payments, stripe, or a function."""
    what: str
    request: str = ""
    """The request to Stripe that did it, if there is one."""
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
    """The earliest first; within a second, Stripe's first."""
    findings: Sequence[Finding]
    charges: int | None
    """Charges that succeeded, by Stripe's ledger; None if Stripe does not answer."""
    is_paid: bool
    omitted: Sequence[str] = ()
    """What was not read to its end."""


def story(facts: Facts) -> Story:
    row, intents = facts.payment, facts.stripe.intents
    events = [event for each in intents for event in _of_intent(each)]
    if row and row.released_at:
        events.append(Event(row.released_at, "payments", "an operator released it: Stripe had nothing of the order"))
    events += sorted(starmap(_of_line, facts.lines), key=lambda event: event.at)
    charges = [charge for each in intents for charge in each.charges if charge.status == "succeeded"]
    return Story(
        order_id=facts.order_id,
        now=facts.now,
        states=list(_states(facts)),
        # Stripe's times are whole seconds: within one, its events come before what was logged of them.
        events=sorted(events, key=lambda event: int(event.at)),
        findings=find(facts),
        charges=None if facts.stripe.failure else len(charges),
        is_paid=facts.order is not None and facts.order.status is OrderStatus.PAID,
        omitted=facts.omitted,
    )


def _states(facts: Facts) -> Iterator[State]:
    if order := facts.order:
        more = f"attempt {order.attempt}, {order.payment_method}, {as_money(order.amount_minor, order.currency)}"
        yield State("orders", order.status, f"{more}, placed at {order.placed_at}")
    else:
        yield State("orders", "unreadable" if facts.order_error else "no item")
    if row := facts.payment:
        why = f", {row.reason}" if row.reason else ""
        yield State("payments", row.state, f"attempt {row.attempt}, {row.payment_intent_id or 'no PaymentIntent'}{why}")
    else:
        yield State("payments", "no row")
    for each, intent in ((each, each.intent) for each in facts.stripe.intents):
        money = as_money(intent.amount_minor, intent.currency)
        back = f", refunded {as_money(each.refunded_minor, intent.currency)} of {money}" if each.refunded_minor else ""
        yield State(intent.payment_intent_id, intent.status, money + back)
    if not facts.stripe.intents:
        yield State("stripe", "unknown" if facts.stripe.failure else "no PaymentIntent")
    for refund in facts.refunds:
        by = f", requested by {refund.requested_by or 'staff'} at {refund.requested_at}: {refund.reason or 'no reason'}"
        yield State(refund.refund_id, refund.status, as_money(refund.amount_minor, refund.currency) + by)


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
    for made in each.refunds:
        whose = metadata_of(made).get("refund_id") or "made by hand"
        reason = getattr(made, "failure_reason", None) or getattr(made, "pending_reason", None)
        what = f"{made.id} ({whose}) of {as_money(made.amount, intent.currency)} is {made.status}"
        details = {**ids, "refund_id": whose}
        yield Event(made.created, "stripe", f"{what}, {reason}" if reason else what, REFUND, details=details)


_SAID_OF_A_LINE = "event_type type state status refund_id why cause code wait_seconds replayed".split()


def _of_line(at: float, fields: Mapping[str, Any]) -> Event:
    what = str(fields.get("message") or f"stripe request: {fields.get('endpoint')}")
    more = ", ".join(f"{name} {fields[name]}" for name in _SAID_OF_A_LINE if fields.get(name) is not None)
    tone = "failed" if fields.get("level") == "ERROR" else "plain"
    return Event(at, str(fields.get("service")), f"{what}: {more}" if more else what, tone=tone, details=fields)
