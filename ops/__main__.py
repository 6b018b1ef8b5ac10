"""`python -m ops`, in the project's folder: no PYTHONPATH is needed."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # `python -m` itself adds only the present folder.
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "shared"))
    from ops.command_line import main

    sys.exit(main(sys.argv[1:]))
