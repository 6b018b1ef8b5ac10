"""`python -m console`: the same as `python -m ops console`."""

import sys
from pathlib import Path


def _run() -> int:
    # `python -m` itself adds only the present folder.
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "shared"))
    from ops.command_line import main

    return main(["console", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(_run())
