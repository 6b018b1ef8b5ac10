"""What happened to an order, its state in each service, and what to do about it.

It only reads: the tables, Stripe, and the functions' log. `dlq list` names the orders of dead letters.
Exit status: 0 if nothing is broken, 1 if something is.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

from ops.connection import Stack
from ops.facts import gather
from ops.findings import Finding, Severity
from ops.output import Report, time_of
from ops.story import story


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("order", metavar="ORDER", help="the order's id, or its PaymentIntent's")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    order_id = stack.order_id_of(arguments.order)
    facts = gather(stack, order_id, reads_log=True)
    told, order = story(facts), facts.order
    document: dict[str, Any] = {
        "order_id": order_id,
        "customer_id": order.customer_id if order else None,
        "correlation_id": order.correlation_id if order else None,
        "states": [each._asdict() for each in told.states],
        "what_happened": [{"at": time_of(each.at), "where": each.where, "what": each.what} for each in told.events],
        "findings": [described(each) for each in told.findings],
    }
    if told.omitted:
        document["omitted"] = list(told.omitted)
    return Report(document, is_wrong=told.findings[0].severity is Severity.BROKEN)


def described(finding: Finding) -> dict[str, Any]:
    """A finding as a part of a document."""
    by = f", by {time_of(finding.until)}" if finding.until else ""
    then = f"{finding.next}{by}" if finding.next else None
    return {"severity": finding.severity.name, "says": finding.says, "next": then, "fix": finding.fix}
