"""The command line: `python -m ops [--stack NAME] [--json] [--yes] COMMAND …`.

    exit status   0    nothing is wrong, or the change is done
                  1    something is wrong, or the change is not done: a dry run, or a refusal
                  2    the command could not run: arguments, credentials, permissions, a service that does not answer
                  130  you pressed Ctrl-C

A command only reads unless --yes is given. Without it, a command that changes something says exactly what it would do.
"""

import sys
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import Any

from ops import audit, check, dlq, explain, pending, publish, release, restore, token, webhook
from ops.connection import connect
from ops.output import Report, problem_of, redacted, show

_MODULES = (explain, pending, release, dlq, publish, restore, audit, check, webhook, token)
COMMANDS: dict[str, Any] = {module.__name__.rpartition(".")[2]: module for module in _MODULES}
"""Modules by name, in the order of the help, which is their docstrings. `add_arguments(parser)` adds a command's own;
`run(stack, arguments)` does it and returns a Report, or raises Problem, botocore's errors or Stripe's."""


def main(words: Sequence[str]) -> int:
    """Run one command; returns the exit status. An error that a person can fix is one line."""
    arguments = parser().parse_args(words)
    try:
        report: Report = COMMANDS[arguments.command].run(connect(arguments.stack), arguments)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        print(redacted(f"ops: {problem}"), file=sys.stderr)
        return problem.status
    show(report, as_json=arguments.json, out=sys.stdout)
    return report.status


def parser() -> ArgumentParser:
    """The arguments of every command; the common ones before its name and after it alike."""
    as_written: Any = {"formatter_class": RawDescriptionHelpFormatter}
    made = ArgumentParser("python -m ops", description=__doc__, parents=[_common()], **as_written)
    # Defaults of the whole, not of the options: those after the command would undo those before it.
    made.set_defaults(stack=None, json=False, yes=False)
    subparsers = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        about = {"description": command.__doc__, "help": command.__doc__.partition("\n")[0]}
        of_it = subparsers.add_parser(name, parents=[_common()], **about, **as_written)
        if hasattr(command, "add_arguments"):
            command.add_arguments(of_it)
    return made


def _common() -> ArgumentParser:
    common = ArgumentParser(add_help=False, argument_default=SUPPRESS)
    common.add_argument("--stack", metavar="NAME", help="a deployed stack (default: the local one, if it runs)")
    common.add_argument("--json", action="store_true", help="one JSON document, for scripts")
    common.add_argument("--yes", action="store_true", help="change it; without it, say what would be changed")
    return common
