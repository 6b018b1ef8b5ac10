"""Runs the stack of `python -m local` with two usual workers alongside ours, and a console in the browser."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn

from lab.console.breaks import LocalBreaks
from lab.console.reading import Reader
from lab.console.web import create_app
from lab.usual import deploy_usual_workers
from local import __main__ as local
from local.given_stripe import GivenStripe
from local.processes import StartupError
from local.stack import Stack
from ops.connection import connect

_LISTED_SECONDS = 3600
"""Charges that are older than this when the console starts may be another stack's: they are not read."""


def main(arguments: list[str]) -> int:
    return local.main(arguments, serving_console_and_usual_workers)


@contextmanager
def serving_console_and_usual_workers(stack: Stack, stack_json: Path) -> Iterator[None]:
    """The usual workers have accounts of their own, which only a stand-in gives. Raises StartupError."""
    if GivenStripe.of(os.environ) is None:
        deploy_usual_workers(stack)
    with serving_console(stack, stack_json):
        yield


@contextmanager
def serving_console(stack: Stack, stack_json: Path) -> Iterator[None]:
    """Serve the console at the stack's `console_url` for as long as the block lasts. Raises StartupError."""
    ops = connect(str(stack_json))
    reader = Reader(ops, time.time() - _LISTED_SECONDS)
    app = create_app(reader, breaks=LocalBreaks.of(ops, stack), shop=stack.page_url)
    at = urlsplit(stack.console_url)
    config = uvicorn.Config(app, str(at.hostname), at.port or 0, log_level="warning", server_header=False)
    config.timeout_graceful_shutdown = 1  # A browser keeps its connection open.
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise StartupError(f"the console cannot be served at {stack.console_url}: is the port taken?")
        time.sleep(0.05)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
