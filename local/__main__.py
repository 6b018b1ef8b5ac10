"""`make local`: keeps the whole stack up until Ctrl-C, and writes where everything is to `.local/stack.json`."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from local.arguments import Arguments
from local.arguments import port as port_of
from local.changes import contents, deploy_what_changes
from local.given_stripe import GivenStripe
from local.processes import free_ports
from local.project_files import PROJECT
from local.samples import open_to_sam_local
from local.stack import Stack, published, running_stack
from local.terminal import STOPPED, run_in_terminal
from local.work_dir import sole_user_of

FIRST_PORT = 4242
_HOST = "127.0.0.1"
type ServeConsole = Callable[[Stack, Path], AbstractContextManager[None]]
"""Serves a console of the stack at its `console_url` for as long as the block lasts; the file is its stack.json."""

_RUNNING = """
[bold]onecharge is running[/]. It started in {seconds:.0f} s.
{console}
  shop     {page}   order and pay, as a customer
  API      docs/guides/api.md has the first order with curl
  others   {stack_json}

`.venv/bin/python -m ops explain ORDER` says what happened to an order. What you save under functions/ or shared/ is
deployed in a second, web/ is served as it is. Ctrl-C stops all of it."""


def ports_from(first: int, say: Callable[[str], object]) -> tuple[int, int]:
    """The console's port and the shop's: the first two from `first` on that are free. Raises StartupError."""
    console, shop = islice(free_ports(_HOST, range(first, first + 100)), 2)
    if shop != first + 1:
        say(f"port {first if console != first else first + 1} is taken: the next free ones are {console} and {shop}")
    return console, shop


def serve(work_dir: Path, port: int, console: Console, serve_console: ServeConsole | None) -> int:
    """Keep the stack up until Ctrl-C."""
    started, stack_json = time.monotonic(), work_dir / "stack.json"

    def say(line: str) -> None:
        console.print(f"• {line}", markup=False, highlight=False, soft_wrap=True)

    with sole_user_of(work_dir):
        stack_json.unlink(missing_ok=True)
        console_port, page_port = ports_from(port, say)
        deployed = contents(PROJECT)
        with running_stack(
            work_dir=work_dir,
            stripe=GivenStripe.of(os.environ),
            webhooks_by_themselves=True,
            page_port=page_port,
            console_url=f"http://{_HOST}:{console_port}/" if serve_console else "",
            on_progress=say,
        ) as stack:
            _warm_up(stack)
            with (
                published(stack, stack_json),
                serve_console(stack, stack_json) if serve_console else nullcontext(),
                open_to_sam_local(stack, work_dir),
            ):
                running = _RUNNING.format(
                    seconds=time.monotonic() - started,
                    console=f"\n  console  {stack.console_url}   all orders live: break it, and watch"
                    * bool(serve_console),
                    page=stack.page_url,
                    stack_json=escape(str(stack_json)),
                )
                console.print(running, highlight=False, soft_wrap=True)
                deploy_what_changes(stack, deployed, say)


def _warm_up(stack: Stack) -> None:
    """Start the functions on an order's way with an empty batch: the first order is as quick as the next ones."""
    client = stack.aws.client("lambda")
    for logical_id in ("PublishEventsFunction", "ChargeOrderFunction", "UpdateOrderFunction"):
        function = stack.aws.physical_id(stack.stack_name, logical_id)
        client.invoke(FunctionName=function, InvocationType="Event", Payload=b'{"Records": []}')


def main(arguments: list[str], serve_console: ServeConsole | None = None) -> int:
    """Keep the stack up; with a console, if `serve_console` is given. Returns the exit code."""
    parser = Arguments(prog="make local", description=__doc__)
    parser.add_argument("--work-dir", type=Path, default=PROJECT / ".local")
    parser.add_argument(
        "--port", type=port_of, default=FIRST_PORT, help="of the console, if there is one; the shop has the next one"
    )
    options = parser.parse_args(arguments)
    code = run_in_terminal(lambda console: serve(options.work_dir.resolve(), options.port, console, serve_console))
    # Ctrl-C is how it ends.
    return 0 if code == STOPPED else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
