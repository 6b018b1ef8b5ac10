"""The command line: `python -m ops [--stack NAME] [--json] [--yes] COMMAND …`.

    exit status   0    nothing is wrong, or the change is done
                  1    something is wrong, or the change is not done: a dry run, or a refusal
                  2    the command could not run: arguments, credentials, permissions, a service that does not answer
                  130  you pressed Ctrl-C

A command only reads unless --yes is given. Without it, a command that changes something says exactly what it would do.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Protocol

from ops import (
    audit,
    check,
    dlq,
    explain,
    pending,
    publish,
    release,
    restore,
    review,
    token,
    webhook,
)
from ops.connection import Stack, add_stack_options, connect
from ops.errors import problem_of
from ops.output import Report, redacted, show


class Command(Protocol):
    """What the module of a command has; its docstring is the command's help."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add its arguments, or its subcommands."""

    def run(self, stack: Stack, arguments: argparse.Namespace) -> Report:
        """Do it. Without `arguments.yes` it changes nothing, and reports what it would change.

        Raises:
            Problem: it cannot be done; botocore's and Stripe's errors become one (errors.problem_of).
        """


COMMANDS: dict[str, Command] = {
    "explain": explain,
    "pending": pending,
    "release": release,
    "review": review,
    "dlq": dlq,
    "publish": publish,
    "restore": restore,
    "audit": audit,
    "check": check,
    "webhook": webhook,
    "token": token,
}
"""By name, in the order of the help."""


def main(words: Sequence[str]) -> int:
    """Run one command; returns the exit status. An error that a person can fix is one line."""
    arguments = parser().parse_args(words)
    try:
        stack = connect(arguments.stack, arguments.profile, arguments.region, arguments.stripe_key_secret)
        report = COMMANDS[arguments.command].run(stack, arguments)
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        print(redacted(f"ops: {problem}"), file=sys.stderr)
        return problem.status
    show(report, as_json=arguments.json, out=sys.stdout)
    return report.status


def parser() -> argparse.ArgumentParser:
    """The arguments of every command."""
    formatter = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser(prog="python -m ops", description=__doc__, formatter_class=formatter)
    _add_common(made)
    # Defaults of the whole, not of the options: those after the command would undo those before it.
    made.set_defaults(stack=None, profile=None, region=None, stripe_key_secret=None, json=False, yes=False)
    subparsers = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        described = command.__doc__ or ""
        each = subparsers.add_parser(
            name, help=described.partition("\n")[0], description=described, formatter_class=formatter
        )
        command.add_arguments(each)
        for leaf in _leaves(each):
            _add_common(leaf)
    return made


def _leaves(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parser itself, or those of its subcommands."""
    groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return [leaf for group in groups for each in group.choices.values() for leaf in _leaves(each)] or [parser]


def _add_common(parser: argparse.ArgumentParser) -> None:
    """The options of every command, before its name and after it alike."""
    given = parser.add_argument_group("of every command", argument_default=argparse.SUPPRESS)
    add_stack_options(given)
    given.add_argument("--json", action="store_true", help="one JSON document, for scripts")
    given.add_argument("--yes", action="store_true", help="change it; without it, say what would be changed")
