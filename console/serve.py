"""Serves the console on 127.0.0.1, and nowhere else."""

import socket
from typing import TYPE_CHECKING

import uvicorn

from console.reading import Reader
from console.web import create_app
from ops.connection import Stack
from ops.errors import Problem

if TYPE_CHECKING:
    from console.breaks import LocalBreaks
    from console.staff import Staff

HOST = "127.0.0.1"
LOCAL_REFRESH_SECONDS = 1.0
DEPLOYED_REFRESH_SECONDS = 5.0
"""Each look costs requests to CloudWatch, DynamoDB and Stripe, whose limits the functions share."""


def serve(
    stack: Stack,
    *,
    port: int,
    since: float,
    breaks: "LocalBreaks | None" = None,
    staff: "Staff | None" = None,
    shop: str = "",
) -> None:
    """Serve until Ctrl-C; prints the address. Raises Problem: there is no such port, or it is taken.

    Args:
        port: 0 for any that is free.
        since: from when on orders are listed, in epoch seconds.
    """
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except (OSError, OverflowError) as reason:
            why = reason.strerror if isinstance(reason, OSError) else "there is no such port"
            raise Problem(f"port {port} of {HOST} cannot be used: {why}") from None
        port = listening.getsockname()[1]
        app = create_app(
            Reader(stack, since),
            hosts=[f"{HOST}:{port}", f"localhost:{port}"],
            breaks=breaks,
            shop=shop,
            staff=staff,
            refresh_seconds=LOCAL_REFRESH_SECONDS if stack.is_local else DEPLOYED_REFRESH_SECONDS,
        )
        print(f"console: http://{HOST}:{port}/ (Ctrl-C ends it)", flush=True)
        # A page that is open would keep the server for as long as it listens to events.
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, server_header=False)
        uvicorn.Server(config).run(sockets=[listening])
