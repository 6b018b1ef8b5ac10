"""What happened to an order, its state in each service, and what to do about it.

It only reads: the tables, Stripe, and the functions' log. `dlq list` names the orders of dead letters.
Exit status: 0 if nothing is broken, 1 if something is.
"""

from argparse import ArgumentParser, Namespace

from ops.connection import ORDER, Stack
from ops.facts import gather
from ops.findings import Severity
from ops.output import Report, time_of
from ops.story import story


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("order", **ORDER)


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    facts = gather(stack, stack.order_id_of(arguments.order), reads_log=True)
    told, order = story(facts), facts.order
    document = {
        "order_id": facts.order_id,
        "customer_id": order.customer_id if order else None,
        "correlation_id": order.correlation_id if order else None,
        "states": [each._asdict() for each in told.states],
        "what_happened": [{"at": time_of(each.at), "where": each.where, "what": each.what} for each in told.events],
        "findings": [each.as_document() for each in told.findings],
        **({"omitted": list(facts.omitted)} if facts.omitted else {}),
    }
    return Report(document, is_wrong=told.findings[0].severity is Severity.BROKEN)
