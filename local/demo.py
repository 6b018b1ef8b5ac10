"""`make demo`: orders over HTTP, each message delivered up to five times, injected faults, and one charge an order."""

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from local.arguments import Arguments, at_least
from local.arguments import port as port_of
from local.arguments import seed as seed_of
from local.changes import contents, deploy_what_changes
from local.demo_live import Progress, shown
from local.demo_plan import FollowUp, PlannedOrder, make_plan
from local.demo_report import Report, count, show
from local.demo_traffic import Traffic
from local.kept import FIRST_PORT, ServeConsole, addresses, console_url, kept, ports_from
from local.observe import NotIdle, drain, wait_until_idle
from local.project_files import PROJECT
from local.stack import running_stack
from local.terminal import Stopped, run_in_terminal
from local.work_dir import sole_user_of
from stripe_standin.faults import Fault

ORDERS_MIN = 10
_IDLE_SECONDS = 150
_HANG_SECONDS = 60
KEPT = PROJECT / ".local"
"""Where a stack runs that is kept: `python -m ops` looks for its stack.json there."""


def run(traffic: Traffic, *, seed: int, started: float) -> Report:
    """Send everything in, wait until all queues are idle, and count by the ledger."""
    stack = traffic.stack
    stack.stripe.settings(latency_seconds=0.1)
    for order in traffic.plan.orders:
        if order.fault:
            amount = {"amount": str(order.amount_minor)}
            stack.stripe.add_fault(order.fault, amount, seconds=_HANG_SECONDS, path="/v1/payment_intents/*/confirm")
    with traffic.multiplied():
        traffic.place_all()
        traffic.poison_all()
    is_idle = False
    with suppress(NotIdle):
        wait_until_idle(stack, timeout_seconds=_IDLE_SECONDS)
        traffic.follow_up()
        wait_until_idle(stack, timeout_seconds=_IDLE_SECONDS)
        is_idle = True
    dead = drain(stack, stack.payments_dlq_url)
    return count(traffic, dead, is_idle=is_idle, seconds=time.monotonic() - started, seed=seed)


def keep(
    traffic: Traffic,
    stack_json: Path,
    deployed: Mapping[str, str],
    say: Callable[[str], None],
    serve_console: ServeConsole | None,
) -> None:
    """Serve the console, and say which orders are worth a look; the stack runs until Ctrl-C."""
    stack = traffic.stack
    stack.stripe.settings(webhooks_by_themselves=True)
    with kept(stack, stack_json, serve_console), suppress(Stopped):
        say(f"\nonecharge still runs, until Ctrl-C:\n\n{addresses(stack, stack_json)}\n")
        say("In another terminal, in this folder:\n")
        for what, order_id in worth_a_look(traffic.orders).items():
            say(f".venv/bin/python -m ops explain {order_id[:12]}  # {what}")
        deploy_what_changes(stack, deployed, say)


def worth_a_look(orders: Mapping[str, PlannedOrder]) -> dict[str, str]:
    """For each thing that can happen to an order, the id of one that it happened to, each another one."""
    told: dict[str, str] = {}
    for what, holds in _WORTH_A_LOOK.items():
        found = next((each for each, order in orders.items() if holds(order) and each not in told.values()), None)
        if found:
            refunded = ", and one piece was refunded" if orders[found].follow_up is FollowUp.REFUND else ""
            told[f"{what}{refunded}"] = found
    return told


_WORTH_A_LOOK: dict[str, Callable[[PlannedOrder], bool]] = {
    "its worker was killed after the charge": lambda order: order.fault is Fault.HANG_AFTER,
    "Stripe's answer was lost after the charge": lambda order: order.fault is Fault.DROP_AFTER,
    "Stripe answered 500 after the charge": lambda order: order.fault is Fault.ERROR_500_AFTER,
    "declined, then paid with another card": lambda order: order.follow_up is FollowUp.ANOTHER_CARD,
    "paid after 3-D Secure": lambda order: order.follow_up is FollowUp.AT_THE_BANK,
    "canceled": lambda order: order.follow_up is FollowUp.CANCEL,
    "its message was delivered three times or more": lambda order: len(order.extra_deliveries) > 1,
}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Arguments(prog="make demo", description=__doc__)
    parser.add_argument(
        "--orders", type=at_least(ORDERS_MIN, "ORDERS"), default=60, help=f"how many, at least {ORDERS_MIN}"
    )
    parser.add_argument("--seed", type=seed_of, default=None, help="repeats a run; drawn at random if not given")
    parser.add_argument("--work-dir", type=Path, default=PROJECT / ".local" / "demo")
    parser.add_argument(
        "--keep",
        action="store_const",
        dest="work_dir",
        const=KEPT,
        help="the stack runs on afterwards, where `make local` would run, so that `python -m ops` finds it",
    )
    parser.add_argument("--port", type=port_of, default=FIRST_PORT, help="of the console, with --keep")
    parser.add_argument("--report", type=Path, default=PROJECT / ".local" / "demo-report.json")
    return parser.parse_args(arguments)


def demonstrate(options: argparse.Namespace, console: Console, serve_console: ServeConsole | None = None) -> int:
    """Run the demo; returns 0 if every promise was kept, 1 if not."""
    started, work_dir = time.monotonic(), options.work_dir.resolve()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    plan = make_plan(options.orders, seed)
    is_kept, deployed = work_dir == KEPT, contents(PROJECT)

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    console_port, page_port = ports_from(options.port, say) if is_kept else (0, 0)
    with (
        sole_user_of(work_dir),
        running_stack(
            work_dir=work_dir,
            page_port=page_port,
            console_url=console_url(console_port, serve_console) if is_kept else "",
            on_progress=lambda message: say(f"• {message}"),
        ) as stack,
    ):
        say(f"• placing {len(plan.orders)} orders, with seed {seed}")
        traffic = Traffic(stack, plan, Progress(plan))
        with shown(console, stack, traffic.progress):
            report = run(traffic, seed=seed, started=started)
        options.report.write_text(report.as_json())
        show(report, console)
        if is_kept:
            keep(traffic, work_dir / "stack.json", deployed, say, serve_console)
        else:
            say("\n`make demo KEEP=1` leaves all of it running, with a console, a shop, and an order for each fault.")
    if is_kept:
        say("stopped")
    return 0 if report.ok else 1


def main(arguments: list[str], serve_console: ServeConsole | None = None) -> int:
    options = parse(arguments)
    return run_in_terminal(lambda console: demonstrate(options, console, serve_console))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
