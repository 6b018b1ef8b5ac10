"""`make local`: python -m lab.console [--port PORT], as python -m local, with the console and the usual workers."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # `python -m` itself adds only the present folder.
    sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "shared"))
    from lab.console.serve import main

    sys.exit(main(sys.argv[1:]))
