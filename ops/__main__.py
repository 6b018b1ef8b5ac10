"""`python -m ops`, in the project's folder: no PYTHONPATH is needed."""

import sys
from collections.abc import Sequence
from pathlib import Path

INTERRUPTED = 130
"""The exit status after Ctrl-C, as of a shell's command."""


def run(words: Sequence[str]) -> int:
    # `python -m` itself adds only the present folder.
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "shared"))
    try:
        from ops.command_line import main

        return main(words)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
