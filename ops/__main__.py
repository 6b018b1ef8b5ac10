"""`python -m ops`, in the project's folder: no PYTHONPATH is needed."""

import sys
from pathlib import Path


def _run() -> int:
    project = Path(__file__).resolve().parent.parent
    # `python -m` itself adds only the present folder.
    sys.path.insert(1, str(project / "shared"))
    from ops.command_line import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(_run())
