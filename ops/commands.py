"""Every command: one module each, with what the command line has of it and what it does."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Protocol

from ops import (
    audit,
    check,
    dlq,
    explain,
    failed_records,
    pending,
    restore,
    review,
    rotate_webhook,
    webhook,
)
from ops.connection import Stack
from ops.output import Report


class Command(Protocol):
    """What a command's module has."""

    HELP: str
    """One line for `python -m ops --help`."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add its arguments, or its subcommands."""

    def run(self, stack: Stack, arguments: Namespace) -> Report:
        """Do it. Without `arguments.yes` nothing is changed, and what would be changed is reported.

        Raises:
            Problem: it cannot be done; botocore's and Stripe's errors become one (errors.problem_of).
        """


COMMANDS: Mapping[str, Command] = {
    "explain": explain,
    "pending": pending,
    "review": review,
    "dlq": dlq,
    "failed-records": failed_records,
    "restore": restore,
    "audit": audit,
    "check": check,
    "webhook": webhook,
    "rotate-webhook": rotate_webhook,
}
"""By name, in the order of the help."""
