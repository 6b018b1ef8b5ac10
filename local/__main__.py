"""`make local`: keeps the whole stack up until Ctrl-C, and writes where everything is to `.local/stack.json`."""

import argparse
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from local.given_stripe import GivenStripe
from local.processes import DidNotStart
from local.samples import write_environment
from local.stack import PROJECT, Stack, running_stack

_EXAMPLE = """\
curl -i {api_url}/orders -H 'Idempotency-Key: my-first-order' \\
  -d '{{"customer_id": "cus_1", "currency": "eur", "payment_method": "pm_card_visa",
       "items": [{{"sku": "mug", "quantity": 2, "unit_amount": 1250}}]}}'"""


class Stopped(Exception):
    """Somebody pressed Ctrl-C, or sent SIGTERM."""


def stop_on_signals() -> None:
    """From now on Ctrl-C and SIGTERM raise Stopped, so that everything that was started is ended in order."""

    def stop(*_: object) -> None:
        # A second signal while tidying up would leave things behind.
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise Stopped

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)


@contextmanager
def sole_user_of(work_dir: Path) -> Iterator[None]:
    """Nobody else runs a stack in this folder; raises DidNotStart if somebody does."""
    work_dir.mkdir(parents=True, exist_ok=True)
    with (work_dir / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DidNotStart(f"another run is using {work_dir}; stop it first") from None
        yield


@contextmanager
def published(stack: Stack, path: Path) -> Iterator[None]:
    """The stack's whereabouts in a file, which is there only while the stack is."""
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(stack.as_json())
    unfinished.rename(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make local", description=__doc__)
    parser.add_argument("--work-dir", type=Path, default=PROJECT / ".local")
    parser.add_argument("--host", default="127.0.0.1", help="172.17.0.1 for the containers of `sam local invoke`")
    options = parser.parse_args()
    work_dir = options.work_dir.resolve()
    stop_on_signals()
    console = Console()
    stack_json = work_dir / "stack.json"
    try:
        with sole_user_of(work_dir):
            stack_json.unlink(missing_ok=True)
            given = GivenStripe.of(os.environ)
            with (
                running_stack(
                    work_dir=work_dir, host=options.host, stripe=given, news=lambda m: console.print(f"• {m}")
                ) as stack,
                published(stack, stack_json),
            ):
                write_environment(stack, work_dir / "env.json")
                console.print(f"\n[bold]onecharge is running.[/] Everything's address: {stack_json}\n")
                console.print(_EXAMPLE.format(api_url=stack.api_url), markup=False, highlight=False, soft_wrap=True)
                console.print("\nCtrl-C stops it.")
                while True:
                    signal.pause()
    except Stopped:
        console.print("stopped")
        return 0
    except (DidNotStart, OSError) as reason:
        console.print(f"[bold red]not started:[/] {reason}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
