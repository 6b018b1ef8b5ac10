"""`make experiments`: the ten experiments of the console, on the local stack, with two usual workers alongside ours.

Each button is pressed as in the browser. Then the charges in Stripe's ledger are counted, for each of the three
accounts. `--write` keeps the table in README.md. It takes about five minutes, since the message of a killed worker
comes back after 72 seconds.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from lab.console.breaks import LocalBreaks
from lab.console.experiments import EXPERIMENTS as CONSOLE
from lab.usual import USUAL_WORKERS, deploy_usual_workers
from local.observe import messages_in
from local.project_files import PROJECT
from local.stack import running_stack
from local.terminal import run_in_terminal
from ops.connection import connect

OURS = "acct_standin"
ACCOUNTS = {**{worker.account: worker.title for worker in USUAL_WORKERS}, OURS: "onecharge"}
"""The design behind each account at Stripe."""
_SETTLE_SECONDS, _IDLE_POLLS = 500, 8
_BEGIN, _END = "<!-- written with WRITE=1 -->\n", "<!-- end -->\n"

_PRESSED: Mapping[int, Sequence[str]] = {
    1: ["place"],
    2: ["five"],
    3: ["lose"],
    4: ["500"],
    5: ["kill"],
    6: ["down"],
    7: ["place", "day", "release"],
    8: ["place", "row"],
    9: ["place", "webhook", "dlq"],
    10: ["kill", "again", "row", "dlq"],  # Of all surprises, one that can be repeated.
}
EXPERIMENTS = {each.title: _PRESSED[each.number] for each in CONSOLE}
"""By title, the buttons that are pressed for one order, one after the other."""


@dataclass(frozen=True)
class Outcome:
    """An experiment, and how often each design charged its order."""

    title: str
    charges: dict[str, int]
    """By account."""


def run(work_dir: Path, on_progress: Callable[[str], object] = lambda _: None) -> list[Outcome]:
    """Do all of them on a stack of their own, and count. Raises StartupError; Problem if a button cannot be pressed."""
    with running_stack(work_dir=work_dir, webhooks_by_themselves=True, on_progress=on_progress) as stack:
        stack_json = work_dir / "stack.json"
        stack_json.write_text(stack.as_json())
        deploy_usual_workers(stack)
        breaks = LocalBreaks.of(connect(str(stack_json)), stack)
        assert breaks, "the local stack's Stripe is the stand-in"
        orders = press_all(
            lambda button, order_id: str(breaks.press(button, order_id=order_id)[1]),
            lambda _: _settle(breaks),
            on_progress,
        )
        ledger = stack.stripe.ledger()
    return [
        Outcome(title, {account: len(ledger.charges_of(orders[title], account)) for account in ACCOUNTS})
        for title in EXPERIMENTS
    ]


def press_all(
    press: Callable[[str, str | None], str],
    settle: Callable[[Iterable[str]], object],
    on_progress: Callable[[str], object] = lambda _: None,
) -> dict[str, str]:
    """Press all buttons, and wait for what they cause; returns the order of each experiment, by title.

    Args:
        press: presses the button of this name, for this order or for a new one; returns the order's id.
        settle: returns once nothing more happens to these orders.
    """
    orders: dict[str, str] = {}
    # While Stripe is down, all others are disturbed: it comes after them.
    for is_down in (False, True):
        titles = [title for title, buttons in EXPERIMENTS.items() if ("down" in buttons) is is_down]
        for presses in range(max(len(EXPERIMENTS[title]) for title in titles)):
            for title in titles:
                if presses < len(EXPERIMENTS[title]):
                    button = EXPERIMENTS[title][presses]
                    on_progress(f"{title}: {button}")
                    orders[title] = press(button, orders.get(title))
            on_progress("waiting until every message is processed")
            settle(orders.values())
    return orders


def _settle(breaks: LocalBreaks) -> None:
    """Return once all queues have been empty for some seconds."""
    stack, deadline, idle = breaks.stack, time.monotonic() + _SETTLE_SECONDS, 0
    queues = breaks.queue_urls.values()
    while idle < _IDLE_POLLS:
        idle = 0 if any(messages_in(stack, each) for each in queues) else idle + 1
        if time.monotonic() > deadline:
            raise TimeoutError(f"messages are left after {_SETTLE_SECONDS} seconds")
        time.sleep(0.5)


def in_markdown(outcomes: Sequence[Outcome]) -> str:
    rows = [["charges of one order", *ACCOUNTS.values()], ["---", *["---:"] * len(ACCOUNTS)]]
    for each in outcomes:
        counts = [each.charges[account] for account in ACCOUNTS]
        rows.append([each.title, *(str(count) if count == 1 else f"**{count}**" for count in counts)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def program(console: Console, *, writes: bool) -> int:
    """Returns 1 if onecharge has charged an order not exactly once."""
    with tempfile.TemporaryDirectory() as folder, console.status("starting") as status:
        outcomes = run(Path(folder), status.update)
    print(in_markdown(outcomes))
    if writes:
        readme = PROJECT / "README.md"
        before, rest = readme.read_text().split(_BEGIN)
        readme.write_text(f"{before}{_BEGIN}\n{in_markdown(outcomes)}\n{_END}{rest.split(_END)[1]}")
    return int(any(each.charges[OURS] != 1 for each in outcomes))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make experiments", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep the table in README.md")
    writes = parser.parse_args().write
    return run_in_terminal(lambda console: program(console, writes=writes))


if __name__ == "__main__":
    sys.exit(main())
