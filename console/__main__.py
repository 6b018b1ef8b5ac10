"""All orders live, and one order's timeline, in a browser on this machine.

It shows what `ops explain` knows and what the functions logged. A deployed stack's console only reads, with your
credentials, and needs logs:FilterLogEvents and dynamodb:BatchGetItem besides explain's permissions. `make local` runs
one of the local stack, with buttons that break it.
"""

import argparse
import sys
import time
from pathlib import Path

_PROJECT = Path(__file__).resolve().parent.parent
_MINUTES = 60


def _run() -> int:
    # `python -m` itself adds only the present folder.
    sys.path.insert(1, str(_PROJECT / "shared"))
    from console.breaks import LocalBreaks
    from console.serve import serve
    from ops.connection import add_stack_options, connect
    from ops.errors import problem_of

    parser = argparse.ArgumentParser(
        prog="python -m console", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_stack_options(parser)
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    parser.add_argument(
        "--minutes", type=int, default=_MINUTES, metavar="N", help=f"list the orders of the last N minutes ({_MINUTES})"
    )
    parser.add_argument("--shop", default="", metavar="URL", help="the customer's page, to link to")
    options = parser.parse_args()
    try:
        stack = connect(options.stack, options.profile, options.region, options.stripe_key_secret)
        breaks = LocalBreaks.of(stack, options.stack) if stack.is_local else None
        since = time.time() - options.minutes * 60
        serve(stack, port=options.port, since=since, breaks=breaks, shop=options.shop)
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        print(f"console: {problem}", file=sys.stderr)
        return problem.status
    return 0


if __name__ == "__main__":
    sys.exit(_run())
