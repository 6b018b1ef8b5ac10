"""docs/runbook.md prints commands that exist, with options that they have: at night they are copied."""

import re
import shlex

from ops.command_line import COMMANDS, parser
from tests.support.runbook import RUNBOOK

PLACEHOLDERS = {"DAY": "2026-11-21", "NAME": "shop-prod"}
PRINTED = sorted(set(re.findall(r"python -m ops[^`\n#]*", re.sub(r"\\\n *", "", RUNBOOK.read_text()))))


def test_a_printed_command_is_one_that_there_is() -> None:
    """With its options, and with all that it needs; it names its stack, or the local one would answer."""
    assert len(PRINTED) > 10
    for command in PRINTED:
        words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)]
        assert words[3:5] == ["--stack", "shop-prod"], command
        assert parser().parse_args(words[3:]).command in COMMANDS, command
