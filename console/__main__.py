"""`python -m console --stack FILE.json --port N`: the console of a local stack. `make local` runs it."""

import argparse
import sys
import time
from pathlib import Path

_PROJECT = Path(__file__).resolve().parent.parent


def _run() -> int:
    # `python -m` itself adds only the present folder.
    sys.path.insert(1, str(_PROJECT / "shared"))
    from console.breaks import LocalBreaks
    from console.serve import serve
    from ops.connection import connect
    from ops.errors import Problem

    parser = argparse.ArgumentParser(prog="python -m console", description=__doc__)
    parser.add_argument("--stack", metavar="FILE.json", help="stack.json of a local run (default: .local/stack.json)")
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    options = parser.parse_args()
    try:
        stack = connect(options.stack)
        if not stack.is_local:
            raise Problem(f"a deployed stack's console is `python -m ops --stack {stack.name} console`")
        serve(stack, port=options.port, since=time.time() - 3600, breaks=LocalBreaks.of(stack, options.stack))
    except Problem as problem:
        print(f"console: {problem}", file=sys.stderr)
        return problem.status
    return 0


if __name__ == "__main__":
    sys.exit(_run())
