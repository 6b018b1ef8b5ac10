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
from typing import Any, NoReturn

from ops import audit, check, dlq, explain, pending, publish, release, restore, token, webhook
from ops.connection import connect
from ops.errors import ExitStatus, problem_of
from ops.output import redacted, show

_MODULES = (explain, pending, release, dlq, publish, restore, audit, check, webhook, token)
COMMANDS: dict[str, Any] = {module.__name__.rpartition(".")[2]: module for module in _MODULES}
"""Modules by name, in the order of the help, which is their docstrings. `add_arguments(parser)` adds a command's own;
`run(stack, arguments)` does it and returns a Report, or raises Problem, botocore's errors or Stripe's."""

_AS_WRITTEN = argparse.RawDescriptionHelpFormatter


class Parser(argparse.ArgumentParser):
    """Wrong arguments are one line, too."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitStatus.USAGE, f"ops: {message} (`{self.prog} --help` says how)\n")


def main(words: Sequence[str]) -> int:
    """Run one command; returns the exit status. An error that a person can fix is one line."""
    arguments = parser().parse_args(words)
    try:
        report = COMMANDS[arguments.command].run(connect(arguments.stack), arguments)
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        print(redacted(f"ops: {problem}"), file=sys.stderr)
        return problem.status
    show(report, as_json=arguments.json, out=sys.stdout)
    return int(report.status)


def parser() -> argparse.ArgumentParser:
    """The arguments of every command; the common ones before its name and after it alike."""
    made = _with_common_options(
        Parser(prog=".venv/bin/python -m ops", description=__doc__, formatter_class=_AS_WRITTEN)
    )
    # Defaults of the whole, not of the options: those after the command would undo those before it.
    made.set_defaults(stack=None, json=False, yes=False)
    subparsers = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        described = command.__doc__ or ""
        shown: Any = {"description": described, "formatter_class": _AS_WRITTEN}
        command.add_arguments(
            _with_common_options(subparsers.add_parser(name, help=described.partition("\n")[0], **shown))
        )
    return made


def _with_common_options[P: argparse.ArgumentParser](parser: P) -> P:
    given = parser.add_argument_group("of every command", argument_default=argparse.SUPPRESS)
    given.add_argument("--stack", metavar="NAME", help="a deployed stack, or `local` (default: local, if it runs)")
    given.add_argument("--json", action="store_true", help="one JSON document, for scripts")
    given.add_argument("--yes", action="store_true", help="change it; without it, say what would be changed")
    return parser
