"""Whoever operates a stack: runs `python -m ops` as a program, as from a terminal, and reads its JSON."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.stack import Stack
from testing.harness import PROJECT


@dataclass(frozen=True)
class Answer:
    """What a command printed."""

    status: int
    document: Any
    """Its JSON document; None if it printed none."""
    stderr: str

    @property
    def causes(self) -> list[str]:
        """What explain has found, by name; what is broken comes first."""
        return [finding["cause"] for finding in self.document["findings"]]


class Operator:
    """Runs commands against a stack, through its stack.json as `make local` writes it."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._stack_json = folder / "stack.json"
        self._stack_json.write_text(stack.as_json())

    def run(self, *words: str) -> Answer:
        """Run one command with --json."""
        done = self._run("--json", *words)
        return Answer(done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr)

    def text(self, *words: str) -> str:
        """What the command prints for a person."""
        return self._run(*words).stdout

    def explain(self, reference: str) -> Answer:
        return self.run("explain", reference)

    def _run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "ops", "--stack", str(self._stack_json), *words]
        return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False)
