"""What happened to an order, its state in each service, what it waits for, and what fixes it.

It only reads: the tables, the DLQs (each message is visible again afterwards), Stripe, the scheduled jobs' checkpoints.
Exit status: 0 if nothing is broken, 1 if something is.
"""

import time
from argparse import ArgumentParser, Namespace
from dataclasses import asdict, astuple
from typing import Any

from ops.connection import Stack
from ops.errors import ExitStatus
from ops.facts import gather, order_id_of_reference, surroundings
from ops.findings import Finding
from ops.output import Report, Table, duration_of, time_of
from ops.story import story

_STYLES = {"BROKEN": "red", "WAITS": "yellow", "FINE": "green"}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "order", metavar="ORDER", help="an order id or, locally, its beginning; or a PaymentIntent's id"
    )


def run(stack: Stack, arguments: Namespace) -> Report:
    order_id = order_id_of_reference(stack, arguments.order)
    facts = gather(stack, order_id, surroundings(stack, now=int(time.time())), asks_stripe=True)
    told, order = story(facts), facts.order
    about = f", customer {order.customer_id}, correlation id {order.correlation_id}" if order else ""
    happened = [{"at": time_of(each.at), "where": each.where, "what": each.what} for each in told.events]
    found = [described(each, told.now) for each in told.findings]
    styles = [_STYLES[each["severity"]] for each in found]
    parts: list[Table | str] = [
        Table(f"{order_id}{about}", ("where", "state", ""), [astuple(each) for each in told.states]),
        Table.of("what happened (UTC)", "at where what", happened),
        Table.of("what is found", "severity says detail moves fix", found, styles),
    ]
    if not facts.are_dead_letters_complete:
        parts.append("The DLQs hold more messages than were read: one more of this order may be among them.")
    document = {
        "order_id": order_id,
        "states": {each.where: each.state for each in told.states},
        "findings": found,
        "timeline": happened,
    }
    return Report(document, parts, ExitStatus.FOUND if told.is_broken else ExitStatus.OK)


def described(finding: Finding, now: int) -> dict[str, Any]:
    """A finding as a part of a document, and as a row of a table."""
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
        "fix": finding.fix,
    }
