"""`make local`: keeps the whole stack up until Ctrl-C, and writes where everything is to `.local/stack.json`."""

import argparse
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from local.given_stripe import GivenStripe
from local.price_list import sold
from local.processes import StartupError, free_port, running, tail
from local.samples import write_environment
from local.stack import PROJECT, Stack, published, running_stack
from local.terminal import STOPPED, run_in_terminal
from local.usual import deploy_usual_workers
from local.work_dir import sole_user_of

_CONSOLE_SECONDS = 60
# Quoted, since the URL holds a `$`, and the path what it may.
_EXAMPLE = """\
TOKEN=$(.venv/bin/python -m local.token cus_1 --stack {stack_json})
curl -i '{api_url}/orders' -H "Authorization: Bearer $TOKEN" -H 'Idempotency-Key: my-first-order' \\
  -d '{{"currency": "{currency}", "payment_method": "pm_card_visa",
       "items": [{{"sku": "{sku}", "quantity": 2}}]}}'"""


def serve(work_dir: Path, host: str, console: Console) -> int:
    """Keep the stack up until somebody stops it."""
    stack_json = work_dir / "stack.json"
    with sole_user_of(work_dir):
        stack_json.unlink(missing_ok=True)
        given = GivenStripe.of(os.environ)
        with (
            running_stack(
                work_dir=work_dir,
                host=host,
                stripe=given,
                webhooks_by_themselves=True,
                on_progress=lambda m: console.print(f"• {m}"),
            ) as stack,
            _with_console(_with_usual_workers(stack), stack_json) as stack,
        ):
            write_environment(stack, work_dir / "env.json")
            console.print(f"\n[bold]onecharge is running.[/] Break it, and watch: {stack.console_url}")
            console.print(f"Order and pay, as a customer: {stack.page_url}")
            console.print("Everything's address:")
            console.print(f"{stack_json}\n", markup=False, highlight=False, soft_wrap=True)
            example = _EXAMPLE.format(
                api_url=stack.api_url, stack_json=shlex.quote(str(stack_json)), **sold()._asdict()
            )
            console.print(example, markup=False, highlight=False, soft_wrap=True)
            console.print(
                "\nThen `.venv/bin/python -m ops explain ORDER_ID` says what happened to it. Ctrl-C stops it."
            )
            while True:
                signal.pause()


def _with_usual_workers(stack: Stack) -> Stack:
    """The same stack, with the usual workers beside it; not at another Stripe, which has no accounts for them."""
    if GivenStripe(stack.stripe_api_base).is_standin():
        deploy_usual_workers(stack)
    return stack


@contextmanager
def _with_console(stack: Stack, stack_json: Path) -> Iterator[Stack]:
    """Publish the stack, and serve its console beside it. It listens on 127.0.0.1, wherever the stack listens."""
    port = free_port("127.0.0.1")
    stack = replace(stack, console_url=f"http://127.0.0.1:{port}/")
    command = [sys.executable, "-m", "console", "--stack", str(stack_json), "--port", str(port)]
    log = stack_json.with_name("console.log")
    with published(stack, stack_json), running(command, env=os.environ, log=log, cwd=PROJECT) as process:
        deadline = time.monotonic() + _CONSOLE_SECONDS
        while not _is_listening(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise StartupError(f"{tail(log)}\nthe console did not start; its log, {log}, ends as above")
            time.sleep(0.1)
        yield stack


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make local", description=__doc__)
    parser.add_argument("--work-dir", type=Path, default=PROJECT / ".local")
    parser.add_argument("--host", default="127.0.0.1", help="172.17.0.1 for the containers of `sam local invoke`")
    options = parser.parse_args()
    code = run_in_terminal(lambda console: serve(options.work_dir.resolve(), options.host, console))
    # It ends in no other way.
    return 0 if code == STOPPED else code


if __name__ == "__main__":
    sys.exit(main())
