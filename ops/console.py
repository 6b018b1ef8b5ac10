"""Show all orders live, and one order's timeline, in a browser on this machine.

It shows what `explain` knows and what the functions logged. A deployed stack's console only reads, with your
credentials, and needs logs:FilterLogEvents and dynamodb:BatchGetItem besides explain's permissions. With --yes it also
refunds, through the API with a token of `token --scope onecharge/refund`, and cancels, as `review resolve` does. It
asks for no password: with --yes, run it only on a machine that nobody else logs in to. `make local` runs one of the
local stack, which does both, with buttons that break it.
"""

import time
from argparse import ArgumentParser, Namespace
from contextlib import suppress

from ops.connection import Stack
from ops.output import Report

_MINUTES = 60


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    parser.add_argument(
        "--minutes", type=int, default=_MINUTES, metavar="N", help=f"list the orders of the last N minutes ({_MINUTES})"
    )


def run(stack: Stack, arguments: Namespace) -> Report:
    """Serve until Ctrl-C. Raises Problem."""
    # No other command needs a web server.
    from console.breaks import LocalBreaks, local_stack, local_staff
    from console.serve import serve
    from console.staff import Staff

    breaks: LocalBreaks | None = None
    staff: Staff | None = None
    shop = ""
    if stack.is_local:
        local = local_stack(arguments.stack)
        breaks, staff, shop = LocalBreaks.of(stack, local), local_staff(stack, local), local.page_url
    elif arguments.yes:
        staff = Staff.of_deployed(stack)
    since = time.time() - arguments.minutes * 60
    with suppress(KeyboardInterrupt):
        serve(stack, port=arguments.port, since=since, breaks=breaks, staff=staff, shop=shop)
    return Report({}, [])
