"""What happened to an order, its state in each service, and what to do about it.

It only reads: the tables, the DLQs (each message is visible again afterwards), Stripe, and the functions' log.
Exit status: 0 if nothing is broken, 1 if something is.
"""

import time
from argparse import ArgumentParser, Namespace
from typing import Any

from ops.connection import Stack
from ops.errors import ExitStatus
from ops.facts import gather, order_id_of_reference, surroundings
from ops.findings import Finding
from ops.output import Report, Table, time_of
from ops.story import story

STYLES = {"BROKEN": "red", "WAITS": "yellow", "FINE": "green"}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("order", metavar="ORDER", help="the order's id, or its PaymentIntent's")


def run(stack: Stack, arguments: Namespace) -> Report:
    order_id = order_id_of_reference(stack, arguments.order)
    facts = gather(stack, order_id, surroundings(stack, now=int(time.time())), reads_log=True)
    told, order = story(facts), facts.order
    about = f", customer {order.customer_id}, correlation id {order.correlation_id}" if order else ""
    happened = [{"at": time_of(each.at), "where": each.where, "what": each.what} for each in told.events]
    found = [described(each) for each in told.findings]
    parts: list[Table | str] = [
        Table(f"{order_id}{about}", ("where", "state", ""), told.states),
        Table.of("what happened (UTC)", "at where what", happened),
        Table.of("what is to be done", "says next fix", found, [STYLES[each["severity"]] for each in found]),
        *told.omitted,
    ]
    document = {
        "order_id": order_id,
        "states": {each.where: each.state for each in told.states},
        "findings": found,
        "timeline": happened,
    }
    return Report(document, parts, ExitStatus.FOUND if found[0]["severity"] == "BROKEN" else ExitStatus.OK)


def described(finding: Finding) -> dict[str, Any]:
    """A finding as a part of a document, and as a row of a table."""
    by = f", by {time_of(finding.until)}" if finding.until else ""
    return {
        "severity": finding.severity.name,
        "says": finding.says,
        "next": f"{finding.next}{by}" if finding.next else None,
        "until": finding.until,
        "fix": finding.fix,
    }
