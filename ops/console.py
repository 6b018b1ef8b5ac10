"""All orders live, and one order's timeline, in a browser on this machine.

It shows what explain knows and what the functions logged. It only reads, with your credentials, and needs
logs:FilterLogEvents and dynamodb:BatchGetItem besides explain's permissions. It listens on 127.0.0.1 alone.
`make local` starts one of the local stack, with buttons that break it.
"""

import time
from argparse import ArgumentParser, Namespace

from ops.connection import Stack
from ops.errors import ExitStatus
from ops.output import Report


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    parser.add_argument(
        "--minutes", type=int, default=60, metavar="N", help="list the orders of the last N minutes (default: 60)"
    )


def run(stack: Stack, arguments: Namespace) -> Report:
    # No other command waits for its libraries, and the console is built on ops.
    from console.serve import serve

    serve(stack, port=arguments.port, since=time.time() - arguments.minutes * 60)
    return Report({}, [], ExitStatus.OK)
