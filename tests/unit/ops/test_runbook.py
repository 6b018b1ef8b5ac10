"""docs/runbook.md prints commands that exist, with options that they have: nobody looks them up at night."""

import re
import shlex

import pytest

from ops.command_line import _parser
from ops.commands import COMMANDS
from testing.runbook import RUNBOOK

PLACEHOLDERS = {"DAY": "2026-11-21", "NAME": "shop-prod"}
PRINTED = sorted(set(re.findall(r"python -m ops[^`\n#]*", re.sub(r"\\\n *", "", RUNBOOK.read_text()))))


def test_the_runbook_prints_commands() -> None:
    """Else the test below would find nothing to check."""
    assert len(PRINTED) > 10


@pytest.mark.parametrize("command", PRINTED)
def test_a_printed_command_is_one_that_there_is(command: str) -> None:
    """With its options, and with all that it needs."""
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)]
    assert _parser(COMMANDS).parse_args(words[3:]).command in COMMANDS


@pytest.mark.parametrize("command", PRINTED)
def test_a_printed_command_names_its_stack(command: str) -> None:
    """Without it the local stack answers, or none."""
    assert command.startswith("python -m ops --stack NAME ")
