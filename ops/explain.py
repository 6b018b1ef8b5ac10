"""What happened to an order, its state in each service, and what to do about it.

It only reads: the tables, Stripe, and the functions' log. `dlq list` names the orders of dead letters.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any

from onecharge.contract.money import as_money
from onecharge.payments.payment_intents import metadata_of
from ops.connection import ORDER, Stack
from ops.facts import Facts, IntentFacts, gather
from ops.findings import BROKEN, find
from ops.output import Report, time_of

CREATE, CONFIRM, REFUND = "POST /v1/payment_intents", "POST /v1/payment_intents/{id}/confirm", "POST /v1/refunds"
"""Requests to Stripe, as the log names their endpoints."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("order", **ORDER)


def run(stack: Stack, arguments: Namespace) -> Report:
    order_id = stack.order_id_of(arguments.order)
    facts = gather(stack, order_id, intent_ids={arguments.order} - {order_id}, lines=None)
    order, findings = facts.order, find(facts)
    document = {
        "order_id": order_id,
        "customer_id": order.customer_id if order else None,
        "correlation_id": order.correlation_id if order else None,
        "states": list(states(facts)),
        "what_happened": [{"at": time_of(each.at), "where": each.where, "what": each.what} for each in events(facts)],
        "findings": [each._asdict() for each in findings],
    }
    return Report(document, is_wrong=findings[0].severity == BROKEN)


# ---------------------------------------------------------------- what is told, pure: the console shows it in lanes


@dataclass(frozen=True)
class Event:
    """Something that happened: our functions' log lines tell what they did, Stripe's objects what Stripe did."""

    at: float
    """Epoch seconds; Stripe's are whole."""
    where: str
    """payments, stripe, or a function."""
    what: str
    request: str = ""
    """The request to Stripe that did it, if there is one."""
    line: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the log line that it is, if it is one."""


def events(facts: Facts) -> list[Event]:
    """What happened, the earliest first."""
    others = [event for each in facts.intents for event in _of_intent(each)]
    if facts.payment and (at := facts.payment.released_at):
        others.append(Event(at, "payments", "an operator released it: Stripe had nothing of the order"))
    lines = sorted(starmap(_of_line, facts.lines), key=lambda line: line.at)
    placed = [(_place(event, lines), event) for event in others]
    placed += [((line.at, number), line) for number, line in enumerate(lines)]
    return [event for _, event in sorted(placed, key=lambda each: each[0])]


def _place(event: Event, lines: Sequence[Event]) -> tuple[float, float]:
    """Among the lines: Stripe's times are whole seconds, and what a request did comes just before its response."""
    answers = ((line.at, n - 0.5) for n, line in enumerate(lines) if line.line.get("endpoint") == event.request)
    return min((place for place in answers if 0 <= place[0] - event.at < 10), default=(event.at, -1))


def states(facts: Facts) -> Iterator[Mapping[str, str]]:
    """What each service, and Stripe, has of the order and of its refunds now; the findings say what is missing."""
    if order := facts.order:
        more = f"attempt {order.attempt}, {order.payment_method}, {as_money(order.amount_minor, order.currency)}"
        yield {"where": "orders", "state": order.status, "more": f"{more}, placed at {order.placed_at}"}
    if row := facts.payment:
        more = f"attempt {row.attempt}, {row.payment_intent_id or 'no PaymentIntent'}"
        yield {"where": "payments", "state": row.state, "more": f"{more}, {row.reason}" if row.reason else more}
    for intent in (each.refunded for each in facts.intents):
        back = intent.amount_refunded_minor
        more = as_money(intent.amount_minor, intent.currency)
        more += f", refunded {as_money(back, intent.currency)}" if back else ""
        yield {"where": intent.payment_intent_id, "state": intent.status, "more": more}
    for refund in facts.refunds:
        more = f"{as_money(refund.amount_minor, refund.currency)}, requested by {refund.requested_by or 'staff'}"
        more += f" at {refund.requested_at}: {refund.reason or 'no reason'}"
        yield {"where": refund.refund_id, "state": refund.status, "more": more}


def _of_intent(each: IntentFacts) -> Iterator[Event]:
    """What happened to a PaymentIntent, its charges, disputes and refunds."""
    id_, currency = each.intent.payment_intent_id, each.intent.currency
    created = f"{id_} was created: {as_money(each.intent.amount_minor, currency)}"
    yield Event(each.intent.created, "stripe", created, CREATE)
    if each.canceled_at is not None:
        reason = each.intent.cancellation_reason or "no reason"
        yield Event(each.canceled_at, "stripe", f"{id_} was canceled: {reason}")
    made: Any  # The SDK's objects have no attribute for what a response leaves out.
    for made in (*each.charges, *each.disputes, *reversed(each.refunds)):
        what = f"{made.id} of {id_}, {as_money(made.amount, currency)}, is {made.status}"
        whys = [getattr(getattr(made, "outcome", None), "reason", None)]
        whys += [getattr(made, name, None) for name in "failure_code failure_reason pending_reason reason".split()]
        what += next((f", {why}" for why in whys if why), "")
        if made.object == "refund":
            by = metadata_of(made).get("refund_id") or "made by hand"
            yield Event(made.created, "stripe", f"{by}: {what}", REFUND)
        elif made.object == "dispute":
            yield Event(made.created, "stripe", f"DISPUTED: {what}")
        else:
            yield Event(made.created, "stripe", f"CHARGED: {what}" if made.status == "succeeded" else what, CONFIRM)


_SAID_OF_A_LINE = "event_type type state status refund_id why cause code wait_seconds replayed".split()


def _of_line(at: float, fields: Mapping[str, Any]) -> Event:
    what = str(fields.get("message") or f"stripe request: {fields.get('endpoint')}")
    # Stripe's support asks for the id of a request that has failed.
    names = [*_SAID_OF_A_LINE, *["stripe_request_id"] * (fields.get("status") != "2xx")]
    more = ", ".join(f"{name} {fields[name]}" for name in names if fields.get(name) is not None)
    return Event(at, str(fields.get("service")), f"{what}: {more}" if more else what, line=fields)
