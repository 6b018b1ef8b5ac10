"""Serves the console of a local stack on 127.0.0.1, and nowhere else."""

import argparse
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import uvicorn

from console.breaks import LocalBreaks, local_stack
from console.reading import Reader
from console.web import create_app
from ops.connection import connect
from ops.errors import Problem

HOST = "127.0.0.1"
_LISTED_SECONDS = 3600
"""Orders that are older when the console starts are not listed."""


def main(words: Sequence[str]) -> int:
    """Serve until Ctrl-C; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m console")
    parser.add_argument("--stack", required=True, metavar="STACK_JSON", help="the file of a stack that runs here")
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    given = parser.parse_args(words)
    try:
        with suppress(KeyboardInterrupt):
            serve(given.stack, given.port)
    except Problem as problem:
        print(f"console: {problem}", file=sys.stderr)
        return problem.status
    return 0


def serve(stack_json: str, port: int) -> None:
    """Serve until Ctrl-C; prints the address. Raises Problem: there is no such stack or port, or the port is taken."""
    ops = connect(stack_json)
    stack = local_stack(stack_json)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except (OSError, OverflowError) as reason:
            why = reason.strerror if isinstance(reason, OSError) else "there is no such port"
            raise Problem(f"port {port} of {HOST} cannot be used: {why}") from None
        reader = Reader(ops, time.time() - _LISTED_SECONDS)
        app = create_app(reader, breaks=LocalBreaks.of(ops, stack), shop=stack.page_url)
        print(f"console: http://{HOST}:{listening.getsockname()[1]}/ (Ctrl-C ends it)", flush=True)
        # A page that is open would keep the server for as long as it listens to events.
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, server_header=False)
        uvicorn.Server(config).run(sockets=[listening])
