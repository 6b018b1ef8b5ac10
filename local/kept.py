"""A stack that is kept until Ctrl-C: its addresses in stack.json, and the console beside it."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from local.processes import StartupError, free_ports, running, tail
from local.stack import PROJECT, Stack, published

FIRST_PORT = 4242
_HOST = "127.0.0.1"
"""Where the console and the shop listen, wherever the stack listens."""
_CONSOLE_SECONDS = 60


def ports_from(first: int, say: Callable[[str], object]) -> tuple[int, int]:
    """The console's port and the shop's: the first two from `first` on that are free. Raises StartupError."""
    console, shop = islice(free_ports(_HOST, range(first, first + 100)), 2)
    if shop != first + 1:
        say(f"port {first if console != first else first + 1} is taken: the next free ones are {console} and {shop}")
    return console, shop


def console_url(port: int) -> str:
    """The console's address; empty in a project without its folder."""
    return f"http://{_HOST}:{port}/" if (PROJECT / "console").is_dir() else ""


@contextmanager
def kept(stack: Stack, stack_json: Path) -> Iterator[None]:
    """Publish the stack, and serve its console at the stack's `console_url`, if it has one. Raises StartupError."""
    if not stack.console_url:
        with published(stack, stack_json):
            yield
        return
    port = urlsplit(stack.console_url).port or 0
    command = [sys.executable, "-m", "console", "--stack", str(stack_json), "--port", str(port)]
    log = stack_json.with_name("console.log")
    with published(stack, stack_json), running(command, env=os.environ, log=log, cwd=PROJECT) as process:
        deadline = time.monotonic() + _CONSOLE_SECONDS
        # Not whether something listens at the port: another stack's console may have taken it.
        while "console: http" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise StartupError(f"{tail(log)}\nthe console did not start; its log, {log}, ends as above")
            time.sleep(0.1)
        yield


def addresses(stack: Stack, stack_json: Path) -> str:
    """Where a person looks first."""
    console = [f"  console  {stack.console_url}   all orders live: break it, and watch"] if stack.console_url else []
    return "\n".join(
        (
            *console,
            f"  shop     {stack.page_url}   order and pay, as a customer",
            "  API      docs/guides/api.md has the first order with curl",
            f"  others   {stack_json}",
        )
    )
