"""What happened to an order, its state in each service, what it waits for, and what fixes it.

It only reads: the tables, the DLQs (each message is visible again afterwards), Stripe, the scheduled jobs' checkpoints.
Exit status: 0 if nothing is broken, 1 if something is.
"""

import re
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from onecharge.contract.money import as_money
from onecharge.contract.states import PaymentState
from onecharge.payments.stripe_responses import metadata_of
from ops.connection import Stack
from ops.diagnosis import diagnose
from ops.errors import ExitStatus
from ops.facts import Facts, IntentFacts, gather, order_id_of_reference, surroundings
from ops.findings import Finding, Severity
from ops.output import Report, Table, duration_of, time_of
from ops.resolver import RECORD

_STYLES = {Severity.BROKEN: "red", Severity.WAITS: "yellow", Severity.FINE: "green"}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("order", metavar="ORDER", help="an order id, or a PaymentIntent's id")


def run(stack: Stack, arguments: Namespace) -> Report:
    order_id = order_id_of_reference(stack, arguments.order)
    facts = gather(stack, order_id, surroundings(stack, now=int(time.time())), asks_stripe=True)
    findings, moments, rows = diagnose(facts), timeline(facts), list(states(facts))
    customer = f", customer {facts.order.customer_id}" if facts.order else ""
    correlation = f", correlation id {facts.order.correlation_id}" if facts.order else ""
    happened = [{"at": time_of(each.at), "where": each.where, "what": each.what} for each in moments]
    found = [_described(each, facts.now, stack) for each in findings]
    styles = [_STYLES[each.severity] for each in findings]
    parts: list[Table | str] = [
        Table(f"{order_id}{customer}{correlation}", ("where", "state", ""), rows),
        Table.of("what happened (UTC)", "at where what", happened),
        Table.of("what is found", "severity says detail moves fix", found, styles),
    ]
    if not facts.are_dead_letters_complete:
        parts.append("The DLQs hold more messages than were read: one more of this order may be among them.")
    document = {
        "order_id": order_id,
        "states": {where: state for where, state, _ in rows},
        "findings": found,
        "timeline": happened,
    }
    is_broken = any(each.severity is Severity.BROKEN for each in findings)
    return Report(document, parts, ExitStatus.FOUND if is_broken else ExitStatus.OK)


def states(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Each service, its state of the order, and what else it knows."""
    order, payment = facts.order, facts.payment
    if order:
        money = as_money(order.amount_minor, order.currency)
        yield "orders", str(order.status), f"attempt {order.attempt}, {order.payment_method}, {money}"
    else:
        yield "orders", "unreadable" if facts.order_error else "no item", ""
    if payment:
        intent = payment.payment_intent_id or "no PaymentIntent"
        yield "payments", str(payment.state), f"attempt {payment.attempt}, generation {payment.generation}, {intent}"
    else:
        yield "payments", "no row", ""
    for each in facts.stripe.intents:
        money = f"{as_money(each.intent.amount_minor, each.intent.currency)}, generation {each.intent.generation}"
        yield each.intent.payment_intent_id, each.intent.status, money
    if not facts.stripe.intents:
        yield "stripe", "unknown" if facts.stripe.failure else "no PaymentIntent", ""
    for refund in facts.refunds:
        requested = refund.requested.status if refund.requested else "no item"
        yield refund.refund_id, str(refund.row.state) if refund.row else "no row", f"requested: {requested}"


def _described(finding: Finding, now: int, stack: Stack) -> dict[str, Any]:
    mover, until = (finding.next.mover, finding.next.until) if finding.next else (None, None)
    by = ""
    if until is not None:
        left = until - now
        by = f", by {time_of(until)} ({f'in {duration_of(left)}' if left > 0 else f'{duration_of(-left)} ago'})"
    return {
        "cause": finding.cause.name,
        "says": finding.cause.says,
        "severity": finding.severity.name,
        "detail": finding.detail,
        "next": asdict(finding.next) if finding.next else None,
        "moves": f"{mover}{by}" if mover else None,
        "fix": with_names(finding.fix, stack) if finding.fix else None,
    }


def with_names(fix: str, stack: Stack) -> str:
    """The command with the names of this stack: `$(RepublishFunction)` is a logical id."""
    named = re.sub(r"\$\((\w+)\)", lambda logical: stack.resource(logical[1]), fix)
    return named.replace("python -m ops ", f"python -m ops --stack {stack.name} ") if not stack.is_local else named


# ---------------------------------------------------------------- what happened


@dataclass(frozen=True)
class Moment:
    """Something that happened, or will."""

    at: int
    """Epoch seconds."""
    where: str
    """orders, payments, stripe, refunds, review (a person's decision), or a DLQ."""
    what: str


def timeline(facts: Facts) -> list[Moment]:
    """Everything that has a time, the earliest first; within a second in the order of the data flow."""
    moments = [*_of_order(facts), *_of_payment(facts)]
    for intent in facts.stripe.intents:
        moments += _of_intent(intent)
    moments += _of_refunds(facts)
    for letter in facts.dead_letters:
        what = f"{letter.event_type or 'a message that is not an event'} was sent here: {letter.reason}"
        moments.append(Moment(int(letter.sent_at.timestamp()), letter.dlq, what))
    return sorted(moments, key=lambda moment: moment.at)


def _of_order(facts: Facts) -> Iterator[Moment]:
    order = facts.order
    if order is None:
        return
    yield Moment(_epoch(order.placed_at), "orders", f"placed: {as_money(order.amount_minor, order.currency)}")
    if order.attempt_placed_at is not None:
        what = f"attempt {order.attempt} was made, with {order.payment_method}"
        yield Moment(_epoch(order.attempt_placed_at), "orders", what)
    if order.cancel_requested_at is not None:
        person = order.canceled_by
        by = f" by {person['by']}: {person['reason']}" if person else ""
        where = "review" if person else "orders"
        yield Moment(_epoch(order.cancel_requested_at), where, f"its cancellation was requested{by}")


def _of_payment(facts: Facts) -> Iterator[Moment]:
    payment, row = facts.payment, facts.row
    if payment is None:
        return
    first_claims = {name: int(value) for name, value in row.items() if name.startswith("attempt_claimed_at_")}
    for name, at in first_claims.items():
        attempt = name.rpartition("_")[2]
        method = row.get(f"payment_method_{attempt}", "")
        yield Moment(at, "payments", f"attempt {attempt} was first claimed, with {method}")
    if payment.claimed_at not in first_claims.values():
        yield Moment(payment.claimed_at, "payments", f"last claimed, for attempt {payment.attempt}")
    if payment.cancel_requested_at is not None:
        yield Moment(payment.cancel_requested_at, "payments", "its cancellation was requested: nothing is confirmed")
    if payment.refused_at is not None:
        yield Moment(payment.refused_at, "payments", "Stripe refuses the request since then")
    if payment.finalized_at is not None and payment.state is not PaymentState.PENDING:
        code = row.get("decline_code")
        what = f"attempt {payment.attempt} became {payment.state}" + (f": {code}" if code else "")
        yield Moment(payment.finalized_at, "payments", what)
    if payment.last_emitted_at is not None:
        yield Moment(payment.last_emitted_at, "payments", "its outcome was emitted again")
    for name, review in row.items():
        if name.startswith(RECORD):
            what = f"resolved as {review['resolution']} by {review['by']}: {review['reason']}"
            yield Moment(int(review["at"]), "review", what)


def _of_intent(each: IntentFacts) -> Iterator[Moment]:
    # The SDK's objects have no attribute for what a response leaves out.
    intent = each.intent
    name = f"{intent.payment_intent_id} (generation {intent.generation})"
    yield Moment(each.created, "stripe", f"{name} was created: {as_money(intent.amount_minor, intent.currency)}")
    for charge in each.charges:
        code = getattr(getattr(charge, "outcome", None), "reason", None) or getattr(charge, "failure_code", None)
        why = f": {code}" if code and charge.status == "failed" else ""
        money = as_money(charge.amount, intent.currency)
        yield Moment(
            charge.created, "stripe", f"{charge.id} of {intent.payment_intent_id} {charge.status}{why}, {money}"
        )
    if each.canceled_at is not None:
        yield Moment(each.canceled_at, "stripe", f"{name} was canceled: {intent.cancellation_reason or 'no reason'}")
    for refund in each.refunds:
        whose = metadata_of(refund).get("refund_id") or "made by hand"
        reason = getattr(refund, "failure_reason", None) or getattr(refund, "pending_reason", None)
        money = as_money(refund.amount, intent.currency)
        what = f"{refund.id} ({whose}) of {money} is {refund.status}" + (f", {reason}" if reason else "")
        yield Moment(refund.created, "stripe", what)
    for dispute in each.disputes:
        what = f"{dispute.id} of {as_money(dispute.amount, intent.currency)}, {dispute.reason}, is {dispute.status}"
        yield Moment(dispute.created, "stripe", what)


def _of_refunds(facts: Facts) -> Iterator[Moment]:
    for refund in facts.refunds:
        if (asked := refund.requested) is not None:
            what = f"{refund.refund_id} was requested: {as_money(asked.amount_minor, asked.currency)}"
            yield Moment(_epoch(asked.requested_at), "orders", what)
        if refund.row is not None and refund.row.finalized_at is not None:
            reason = refund.row.failure_code or refund.row.pending_reason
            code = f": {reason}" if reason else ""
            yield Moment(refund.row.finalized_at, "refunds", f"{refund.refund_id} became {refund.row.state}{code}")


def _epoch(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())
