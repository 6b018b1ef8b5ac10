"""`python -m console --stack STACK_JSON`: `make local` starts it."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # `python -m` itself adds only the present folder.
    sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "shared"))
    from console.serve import main

    sys.exit(main(sys.argv[1:]))
