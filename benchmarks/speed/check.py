"""`make bench-check`: fails if this checkout costs more than the last release, measured beside it in the same run.

More means one request more to Stripe or DynamoDB for an order, or 5 % more CPU for an order, CPU until the module is
imported, or memory. The release is the one that FORMER_RELEASE names; its code comes out of git's history.
"""

import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks.speed.functions import Variant, WorkFailed, onecharge, running_worker
from benchmarks.speed.measure import count_requests, cpu, warm_up
from benchmarks.speed.progress import progress
from benchmarks.speed.regression import Costs, Interval, findings
from benchmarks.speed.servers import Servers, running_servers
from local.terminal import run_in_terminal
from testing.arguments import Arguments, at_least
from testing.harness import PROJECT
from testing.two_versions.former import NoFormerRelease, unpack_former

FORMER_RELEASE = "benchmarks/speed/FORMER_RELEASE"
_ROUNDS = 6
"""Of each pair of processes."""


def compare(
    former: Variant, present: Variant, servers: Servers, pairs: int, step: Callable[[], None]
) -> tuple[Costs, Costs, dict[str, Interval]]:
    """Measure both, in so many pairs of processes. Raises WorkFailed."""
    ratios: dict[str, list[float]] = defaultdict(list)
    costs = {}
    for number in range(pairs):
        with running_worker(former, servers) as before, running_worker(present, servers) as after:
            for worker in (before, after):
                warm_up(worker, servers)
                if not number:
                    costs[worker.variant.name] = Costs(*count_requests(worker, servers))
            rounds: dict[str, list[float]] = defaultdict(list)
            for turn in range(_ROUNDS):
                order = (before, after) if turn % 2 else (after, before)
                found = {worker.variant.name: cpu(worker, servers) for worker in order}
                for name, seconds in found[present.name].items():
                    rounds[name].append(seconds / found[former.name][name])
            for name, each in rounds.items():
                ratios[name].append(statistics.median(each))
            ratios["import_cpu"].append(after.ready_cpu / before.ready_cpu)
            ratios["peak_memory"].append(after.peak_kb / before.peak_kb)
        step()
    return costs[former.name], costs[present.name], {name: Interval.of(each) for name, each in ratios.items()}


def check(pairs: int, console: Console) -> int:
    """Compare, and say what was found; returns the exit status. Raises StartupError, WorkFailed, NoFormerRelease."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as release:
        revision = unpack_former(PROJECT, Path(release), FORMER_RELEASE)
        with running_servers(Path(folder)) as servers, progress("pairs of processes", pairs) as step:
            former, present, ratios = compare(
                onecharge(Path(release), name="former"), onecharge(name="present"), servers, pairs, step
            )
    for kind in ("fresh", "duplicate"):
        before, after = getattr(former, kind), getattr(present, kind)
        console.print(
            f"10 {kind} orders: {after.stripe} requests to Stripe ({before.stripe} before), {after.dynamodb} to "
            f"DynamoDB ({before.dynamodb}), {after.write_units:g} write units ({before.write_units:g})"
        )
    for name, interval in ratios.items():
        console.print(f"{name}: {interval.median:.3f} of before ({interval.low:.3f} to {interval.high:.3f})")
    found = list(findings(former, present, ratios))
    for each in found:
        console.print(f"costs more than {revision[:10]}: {each}", style="bold red")
    if not found:
        console.print(f"costs no more than {revision[:10]}", style="green")
    return 1 if found else 0


def main() -> int:
    parser = Arguments(prog="make bench-check", description=__doc__)
    parser.add_argument("--pairs", type=at_least(5, "PAIRS"), default=12, help="of processes")
    options = parser.parse_args()

    def program(console: Console) -> int:
        try:
            return check(options.pairs, console)
        except (WorkFailed, NoFormerRelease) as failed:
            console.print(f"no result: {failed}", style="bold red", markup=False)
            return 2

    return run_in_terminal(program, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
