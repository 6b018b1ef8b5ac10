"""An operator: runs the commands of `python -m ops` in this process, and reads their JSON."""

import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from local.stack import Stack
from ops.command_line import main


@dataclass(frozen=True)
class Answer:
    """What a command printed."""

    status: int
    document: Any
    """Its JSON document; None if it printed none."""
    stderr: str

    @property
    def says(self) -> list[str]:
        """What explain has found; what is broken comes first."""
        return [finding["says"] for finding in self.document["findings"]]


class Operator:
    """Runs commands against a stack, through its stack.json as `make local` writes it."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._stack_json = folder / "stack.json"
        self._stack_json.write_text(stack.as_json())

    def run(self, *words: str) -> Answer:
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = main(["--stack", str(self._stack_json), "--json", *words])
        return Answer(status, json.loads(out.getvalue() or "null"), err.getvalue())
