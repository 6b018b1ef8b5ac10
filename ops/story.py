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

    now: int
    """When it is told, in epoch seconds."""
    states: Sequence[State]
    events: Sequence[Event]
    """The earliest first; within a second, Stripe's first."""
    findings: Sequence[Finding]
    charges: int | None
    """Charges that succeeded, by Stripe's ledger; None if Stripe does not answer."""
    is_paid: bool


def story(facts: Facts) -> Story:
    row = facts.payment
    events = [event for each in facts.intents for event in _of_intent(each)]
    if row and row.released_at:
        events.append(Event(row.released_at, "payments", "an operator released it: Stripe had nothing of the order"))
    events += sorted(starmap(_of_line, facts.lines), key=lambda event: event.at)
    charges = [charge for each in facts.intents for charge in each.charges if charge.status == "succeeded"]
    return Story(
        now=facts.now,
        states=list(_states(facts)),
        # Stripe's times are whole seconds: within one, its events come before what was logged of them.
        events=sorted(events, key=lambda event: int(event.at)),
        findings=find(facts),
        charges=None if facts.failure else len(charges),
        is_paid=facts.order is not None and facts.order.status is OrderStatus.PAID,
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
    for each in facts.intents:
        intent, back = each.intent, each.refunded_minor
        money = as_money(intent.amount_minor, intent.currency)
        money += f", refunded {as_money(back, intent.currency)} of {money}" if back else ""
        yield State(intent.payment_intent_id, intent.status, money)
    if not facts.intents:
        yield State("stripe", "unknown" if facts.failure else "no PaymentIntent")
    for refund in facts.refunds:
        by = f", requested by {refund.requested_by or 'staff'} at {refund.requested_at}: {refund.reason or 'no reason'}"
        yield State(refund.refund_id, refund.status, as_money(refund.amount_minor, refund.currency) + by)


def _of_intent(each: IntentFacts) -> Iterator[Event]:
    """What happened to a PaymentIntent, its charges, disputes and refunds."""
    id_, currency = each.intent.payment_intent_id, each.intent.currency
    ids = {"payment_intent": id_}
    created = f"{id_} was created: {as_money(each.intent.amount_minor, currency)}"
    yield Event(each.intent.created, "stripe", created, CREATE, details=ids)
    if each.canceled_at is not None:
        what = f"{id_} was canceled: {each.intent.cancellation_reason or 'no reason'}"
        yield Event(each.canceled_at, "stripe", what, details=ids)
    made: Any  # The SDK's objects have no attribute for what a response leaves out.
    for made in (*each.charges, *each.disputes, *each.refunds):
        what = f"{made.id} of {id_}, {as_money(made.amount, currency)}, is {made.status}"
        request, tone, reason = "", "failed", getattr(made, "reason", None)
        if made.object == "charge":
            is_paid = made.status == "succeeded"
            request, tone, what = CONFIRM, "money" if is_paid else "plain", f"CHARGED: {what}" if is_paid else what
            reason = getattr(getattr(made, "outcome", None), "reason", None) or getattr(made, "failure_code", None)
        elif made.object == "refund":
            request, tone = REFUND, "plain"
            what = f"{metadata_of(made).get('refund_id') or 'made by hand'}: {what}"
            reason = getattr(made, "failure_reason", None) or getattr(made, "pending_reason", None)
        what += f", {reason}" if reason else ""
        yield Event(made.created, "stripe", what, request, tone, {**ids, "id": made.id})


_SAID_OF_A_LINE = "event_type type state status refund_id why cause code wait_seconds replayed".split()


def _of_line(at: float, fields: Mapping[str, Any]) -> Event:
    what = str(fields.get("message") or f"stripe request: {fields.get('endpoint')}")
    more = ", ".join(f"{name} {fields[name]}" for name in _SAID_OF_A_LINE if fields.get(name) is not None)
    tone = "failed" if fields.get("level") == "ERROR" else "plain"
    return Event(at, str(fields.get("service")), f"{what}: {more}" if more else what, tone=tone, details=fields)
