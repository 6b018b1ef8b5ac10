"""A stack that is kept until Ctrl-C: its addresses in stack.json, and a console if one is served."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from pathlib import Path

from local.processes import free_ports
from local.stack import Stack, published

FIRST_PORT = 4242
_HOST = "127.0.0.1"
"""Where the console and the shop listen, wherever the stack listens."""
type ServeConsole = Callable[[Stack, Path], AbstractContextManager[None]]
"""Serves a console of the stack at its `console_url` for as long as the block lasts; the file is its stack.json."""


def ports_from(first: int, say: Callable[[str], object]) -> tuple[int, int]:
    """The console's port and the shop's: the first two from `first` on that are free. Raises StartupError."""
    console, shop = islice(free_ports(_HOST, range(first, first + 100)), 2)
    if shop != first + 1:
        say(f"port {first if console != first else first + 1} is taken: the next free ones are {console} and {shop}")
    return console, shop


def console_url(port: int, serve: ServeConsole | None) -> str:
    """The console's address; empty if none is served."""
    return f"http://{_HOST}:{port}/" if serve else ""


@contextmanager
def kept(stack: Stack, stack_json: Path, serve: ServeConsole | None) -> Iterator[None]:
    """Publish the stack, and serve its console. Raises StartupError."""
    with published(stack, stack_json), serve(stack, stack_json) if serve else nullcontext():
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
