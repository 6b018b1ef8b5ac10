"""`make local`: keeps the whole stack up until Ctrl-C, and writes where everything is to `.local/stack.json`."""

import os
import sys
import time
from pathlib import Path

from rich.console import Console

from local.arguments import Arguments
from local.arguments import port as port_of
from local.changes import contents, deploy_what_changes
from local.given_stripe import GivenStripe
from local.kept import FIRST_PORT, ServeConsole, addresses, console_url, kept, ports_from
from local.project_files import PROJECT
from local.samples import open_to_sam_local
from local.stack import Stack, running_stack
from local.terminal import STOPPED, run_in_terminal
from local.work_dir import sole_user_of

_LAST_WORDS = """
`.venv/bin/python -m ops explain ORDER` says what happened to an order. What you save under functions/ or shared/ is
deployed in a second, web/ is served as it is. Ctrl-C stops all of it."""


def serve(work_dir: Path, port: int, console: Console, serve_console: ServeConsole | None) -> int:
    """Keep the stack up until somebody stops it."""
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
            console_url=console_url(console_port, serve_console),
            on_progress=say,
        ) as stack:
            _warm_up(stack)
            with kept(stack, stack_json, serve_console), open_to_sam_local(stack, work_dir):
                console.print(f"\n[bold]onecharge is running[/]. It started in {time.monotonic() - started:.0f} s.\n")
                console.print(addresses(stack, stack_json), markup=False, highlight=False, soft_wrap=True)
                console.print(_LAST_WORDS, markup=False, highlight=False, soft_wrap=True)
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
    # It ends in no other way.
    return 0 if code == STOPPED else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
