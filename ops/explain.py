"""What happened to an order, in which state it is in each service, what it waits for, and what mends it.

It only reads: the tables, the DLQs (each message is shown again at once), Stripe, the scheduled jobs' checkpoints.
Exit status: 0 if nothing is broken, 1 if something is.
"""

import re
import time
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import Any

from onecharge.orders.schema import StoredOrder
from ops.clock import lasting, shown
from ops.connection import Stack
from ops.diagnosis import diagnose, is_broken
from ops.errors import ExitStatus
from ops.facts import Facts
from ops.findings import Finding, Severity
from ops.gather import gather, order_id_of_reference
from ops.output import Report, Table
from ops.timeline import Moment, timeline

HELP = "say what happened to an order, what it waits for, what is broken, and what mends it"
_STYLES = {Severity.BROKEN: "red", Severity.WAITS: "yellow", Severity.FINE: "green"}


def add_arguments(parser: ArgumentParser) -> None:
    """An order, by any of its names."""
    parser.add_argument("order", metavar="ORDER", help="an order id, a PaymentIntent's id, or a correlation id")


def run(stack: Stack, arguments: Namespace) -> Report:
    """One report of one order."""
    order_id = order_id_of_reference(stack, arguments.order)
    facts = gather(stack, order_id, now=int(time.time()))
    return report_of(facts, diagnose(facts), stack)


def report_of(facts: Facts, findings: list[Finding], stack: Stack) -> Report:
    """The facts and what is found, for a person and for a script."""
    moments = timeline(facts)
    lines = [_lines(finding, facts.now, stack) for finding in findings]
    found = Table(
        "what is found",
        ("", "cause", "next", "what mends it"),
        [(finding.severity.name, *each) for finding, each in zip(findings, lines, strict=True)],
        [_STYLES[finding.severity] for finding in findings],
    )
    return Report(
        {
            "order_id": facts.order_id,
            "states": {where: state for where, state, _ in _states(facts)},
            "findings": [_finding_document(finding, stack) for finding in findings],
            "timeline": [{"at": shown(each.at), "where": each.where, "what": each.what} for each in moments],
        },
        [_states_table(facts), _timeline_table(moments), found, *_notes(facts)],
        ExitStatus.FOUND if is_broken(findings) else ExitStatus.OK,
    )


def _states(facts: Facts) -> list[tuple[str, str, str]]:
    """Each service, its state of the order, and what else it knows."""
    order, payment = facts.order, facts.payment
    unreadable = "unreadable" if facts.order_error else "no item"
    of_order = f"attempt {order.attempt}, {order.payment_method}, {_money(order)}" if order else ""
    intent = (payment.payment_intent_id if payment else None) or "no PaymentIntent"
    of_row = f"attempt {payment.attempt}, generation {payment.generation}, {intent}" if payment else ""
    rows = [
        ("orders", str(order.status) if order else unreadable, of_order),
        ("payments", str(payment.state) if payment else "no row", of_row),
    ]
    for each in facts.stripe.intents:
        money = f"{each.intent.amount_minor} {each.intent.currency}, generation {each.intent.generation}"
        rows.append((each.intent.payment_intent_id, each.intent.status, money))
    if not facts.stripe.intents:
        rows.append(("stripe", "unknown" if facts.stripe.failure else "no PaymentIntent", ""))
    for refund in facts.refunds:
        requested = refund.requested.status if refund.requested else "no item"
        rows.append((refund.refund_id, str(refund.row.state) if refund.row else "no row", f"requested: {requested}"))
    return rows


def _money(order: StoredOrder) -> str:
    return f"{order.amount_minor} {order.currency}"


def _states_table(facts: Facts) -> Table:
    customer = f", customer {facts.order.customer_id}" if facts.order else ""
    correlation = f", correlation id {facts.order.correlation_id}" if facts.order else ""
    return Table(f"{facts.order_id}{customer}{correlation}", ("where", "state", ""), _states(facts))


def _timeline_table(moments: list[Moment]) -> Table:
    rows = [(shown(each.at), each.where, each.what) for each in moments]
    return Table("what happened (UTC)", ("when", "where", "what"), rows)


def _lines(finding: Finding, now: int, stack: Stack) -> tuple[str, str, str]:
    cause = f"{finding.cause}" + (f": {finding.detail}" if finding.detail else "")
    following = ""
    if finding.next is not None:
        until = finding.next.until
        when = f", by {shown(until)} (in {lasting(until - now)})" if until and until > now else ""
        following = f"{finding.next.mover}{when}"
    return cause, following, command_of(finding.mend or "", stack)


def command_of(mend: str, stack: Stack) -> str:
    """The command with the names of this stack: `$(RepublishFunction)` is a logical id."""
    named = re.sub(r"\$\((\w+)\)", lambda logical: stack.resource(logical[1]), mend)
    return named.replace("python -m ops ", f"python -m ops --stack {stack.name} ") if not stack.is_local else named


def _finding_document(finding: Finding, stack: Stack) -> dict[str, Any]:
    until = finding.next.until if finding.next else None
    return {
        "cause": finding.cause.name,
        "says": str(finding.cause),
        "severity": finding.severity.name,
        "detail": finding.detail,
        "next": asdict(finding.next) if finding.next else None,
        "until": shown(until) if until else None,
        "mend": command_of(finding.mend, stack) if finding.mend else None,
    }


def _notes(facts: Facts) -> list[str]:
    if facts.are_dead_letters_complete:
        return []
    return ["The DLQs hold more messages than were read: one more of this order may be among them."]
