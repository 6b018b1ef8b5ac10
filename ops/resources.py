"""`resources`: which stack is this, and what is where? Reads CloudFormation only: the first thing to try."""

from argparse import ArgumentParser, Namespace

from ops.connection import Stack
from ops.output import Report, Table

HELP = "show the stack's resources by their logical ids"

_SHOWN = ("Table", "Queue", "Dlq", "Function", "Topic")


def add_arguments(parser: ArgumentParser) -> None:
    """It has none."""


def run(stack: Stack, arguments: Namespace) -> Report:
    """Names of tables, queues, functions and topics."""
    found = {name: stack.resource(name) for name in stack.logical_ids() if name.endswith(_SHOWN)}
    return Report(
        {"stack": stack.name, "is_local": stack.is_local, "resources": found},
        [Table(f"stack {stack.name}", ("logical id", "physical id"), sorted(found.items()))],
    )
