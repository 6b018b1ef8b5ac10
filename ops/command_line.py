"""The command line: `python -m ops [--stack NAME] [--json] [--yes] COMMAND …`.

    exit status   0   nothing is wrong, or it is done
                  1   something is wrong, or is not done: a dry run of a change, a change that was refused
                  2   it could not be run: arguments, credentials, permissions, a service that does not answer

A command only reads unless --yes is given; without it, one that would change something says exactly what.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ops.commands import COMMANDS, Command
from ops.connection import connect
from ops.errors import Problem, problem_of
from ops.output import redacted, show

PROJECT = Path(__file__).resolve().parent.parent


def main(
    words: Sequence[str],
    *,
    commands: Mapping[str, Command] = COMMANDS,
    environment: Mapping[str, str] = os.environ,
    out: IO[str] | None = None,
    err: IO[str] | None = None,
) -> int:
    """Run one command; returns the exit status. An error that a person can mend is one line."""
    arguments = _parser(commands).parse_args(words)
    try:
        stack = connect(
            arguments.stack,
            stack_json=PROJECT / ".local" / "stack.json",
            environment=environment,
            profile=arguments.profile,
            region=arguments.region,
            stripe_key_secret=arguments.stripe_key_secret,
        )
        report = commands[arguments.command].run(stack, arguments)
    except Exception as error:
        problem = error if isinstance(error, Problem) else problem_of(error)
        if problem is None:
            raise
        print(redacted(f"ops: {problem}"), file=err or sys.stderr)
        return problem.status
    show(report, as_json=arguments.json, out=out or sys.stdout)
    return report.status


def _parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m ops", description=__doc__, formatter_class=formatter)
    _add_common(parser, is_subcommand=False)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in commands.items():
        described = getattr(command, "__doc__", None) or command.HELP
        each = subparsers.add_parser(name, help=command.HELP, description=described, formatter_class=formatter)
        command.add_arguments(each)
        for leaf in _leaves(each):
            _add_common(leaf, is_subcommand=True)
    return parser


def _leaves(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parser itself, or those of its subcommands."""
    groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return [leaf for group in groups for each in group.choices.values() for leaf in _leaves(each)] or [parser]


def _add_common(parser: argparse.ArgumentParser, *, is_subcommand: bool) -> None:
    """The options of every command, before its name and after it alike."""

    def default(value: object) -> object:
        # After the command only what is given there counts: otherwise it would undo what was given before.
        return argparse.SUPPRESS if is_subcommand else value

    given = parser.add_argument_group("of every command")
    given.add_argument(
        "--stack",
        metavar="NAME",
        default=default(None),
        help="a deployed stack's name; `local`, or a stack.json (default: the local stack, if it runs)",
    )
    given.add_argument("--profile", default=default(None), help="AWS profile, as of the AWS CLI")
    given.add_argument("--region", default=default(None), help="AWS region of the stack")
    given.add_argument(
        "--stripe-key-secret",
        metavar="SECRET",
        default=default(None),
        help="secret with the Stripe key to use (default: STRIPE_SECRET_KEY, then the stack's own)",
    )
    given.add_argument("--json", action="store_true", default=default(False), help="one JSON document, for scripts")
    given.add_argument(
        "--yes", action="store_true", default=default(False), help="change it; without it, say what would be changed"
    )
