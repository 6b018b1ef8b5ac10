"""The commands that docs/runbook.md prints, run as they are printed: only what it leaves open is filled in."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from local.emulator import Emulator
from tests.support.harness import PROJECT

RUNBOOK = PROJECT / "docs/runbook.md"
_SECONDS = 120


def commands_of(entry: str) -> list[str]:
    """The command lines in an entry, in their order, without their comments."""
    text = re.split(rf"\n###? {entry}\n", RUNBOOK.read_text(), maxsplit=1)[1]
    section = re.split(r"\n#{1,3} ", text, maxsplit=1)[0]
    blocks: list[str] = re.findall(r"(?ms)^ *```sh\n(.*?)^ *```", section)
    lines = [line.split(" # ")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def command_of(entry: str, begins: str) -> str:
    """The entry's one command that begins so. Fails if the runbook does not print it."""
    [command] = [each for each in commands_of(entry) if each.startswith(begins)]
    return command


def run_printed(command: str, emulator: Emulator, *, cwd: Path, **values: str) -> str:
    """Run it as it is printed, with the words in capitals replaced by these values; returns what it prints.

    `aws` is run through boto3, which knows the same operations and parameters by other names.
    """
    words = [re.sub(r"\b[A-Z]+\b", lambda found: values.get(found[0], found[0]), word) for word in shlex.split(command)]
    if words[0] == "aws":
        return str(_aws(words[1:], emulator, cwd))
    assert words[0] == "python", command
    done = subprocess.run(  # The project's own runbook.
        [sys.executable, *words[1:]], cwd=PROJECT, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _aws(words: list[str], emulator: Emulator, cwd: Path) -> Any:
    """`aws SERVICE OPERATION --some-name VALUE`: boto3's `some_operation(SomeName=VALUE)`.

    An option `--cli-…` is about the command itself.
    """
    service, operation, *rest = words
    options = dict(zip(rest[::2], rest[1::2], strict=False))
    parameters = {
        "".join(part.capitalize() for part in name.removeprefix("--").split("-")): (
            (cwd / value.removeprefix("file://")).read_text() if value.startswith("file://") else value
        )
        for name, value in options.items()
        if name.startswith("--") and not name.startswith("--cli-")
    }
    return getattr(emulator.client(service), operation.replace("-", "_"))(**parameters)
