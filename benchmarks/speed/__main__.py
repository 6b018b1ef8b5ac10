"""`make bench`: how fast and how cheap, beside what people copy. It measures, and says of each target whether it is
reached; it does not fail if one is not.

The results go to .local/bench.json. `--write` also updates results.json, docs/speed.svg and the tables of the READMEs;
`--profile` only writes profiles/*.txt: where our CPU goes.
"""

import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from benchmarks.costs import bill
from benchmarks.speed import functions
from benchmarks.speed.built import build, libraries_built, megabytes, ours_built, usual_by_sam, usual_megabytes
from benchmarks.speed.functions import FLOOR, NAIVE, PEERS, POWERTOOLS, USUAL, Variant, WorkFailed, onecharge
from benchmarks.speed.measure import OnProgress, cold_starts, measure, memory
from benchmarks.speed.picture import PICTURE, svg
from benchmarks.speed.profiles import write_profiles
from benchmarks.speed.progress import progress
from benchmarks.speed.results import LIBRARIES, OURS, PEER, RESULTS, Run
from benchmarks.speed.servers import Servers, running_servers
from benchmarks.speed.tables import for_the_terminal, write_into_readmes
from local.terminal import run_in_terminal
from testing.arguments import Arguments, at_least
from testing.harness import PROJECT

_VERSIONS = ("aws-lambda-powertools", "boto3", "pydantic", "stripe", "urllib3")
_MEMORY_FROM = 1_000


def bench(rounds: int, orders: int, *, is_built: bool, console: Console) -> Run:
    """Measure everything. Raises StartupError, WorkFailed."""
    with tempfile.TemporaryDirectory() as folder, running_servers(Path(folder)) as servers:
        work_dir = Path(folder)
        if is_built:
            console.print("building with `sam build`", style="dim")
            built = build(work_dir)
            ours, alone = ours_built(built), libraries_built(built)
            by_sam = usual_by_sam(work_dir)
        with progress("measuring", _steps(rounds, orders, is_built)) as step:
            figures = measure([*PEERS, onecharge()], servers, rounds, step)
            cold = _cold([USUAL, by_sam, FLOOR, alone, ours], servers, 2 * rounds, step) if is_built else {}
            peaks = _memory(ours, alone, servers, orders, step) if is_built else {}
        return Run(
            at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            machine=_machine(),
            rounds=rounds,
            versions={name: version(name) for name in _VERSIONS},
            figures=figures,
            cold=cold,
            memory=peaks,
            megabytes={OURS: megabytes(ours.folders), "usual": usual_megabytes()} if is_built else {},
            dollars=_dollars(),
        )


def _dollars() -> dict[str, float]:
    """For a million orders of a busy shop, whose batches are full: `make costs` has the bills."""
    of = bill.measured()
    return {
        OURS: bill.total(bill.onecharge(bill.deployed(bill.BUSY), of)),
        NAIVE.name: bill.total(bill.naive_loop(bill.NaiveDesign(bill.BUSY), of)),
    }


def _steps(rounds: int, orders: int, is_built: bool) -> int:
    """How often progress is reported."""
    warm = rounds * (len(PEERS) + 1)
    return warm + (2 * rounds * 5 + (2 * _MEMORY_FROM + orders) // 50 if is_built else 0)


def _cold(variants: Sequence[Variant], servers: Servers, rounds: int, step: OnProgress) -> dict[str, list[float]]:
    taken = cold_starts(variants, servers, rounds, step)
    return {name.replace("onecharge-built", OURS): each for name, each in taken.items()}


def _memory(
    ours: Variant, alone: Variant, servers: Servers, orders: int, step: OnProgress
) -> dict[str, Mapping[str, float]]:
    def peaks(variant: Variant, *goals: int) -> Mapping[str, float]:
        return dict(zip(map(str, goals), memory(variant, servers, goals, step), strict=True))

    return {
        PEER: peaks(POWERTOOLS, _MEMORY_FROM),
        LIBRARIES: peaks(alone, _MEMORY_FROM),
        OURS: peaks(ours, _MEMORY_FROM, max(orders, _MEMORY_FROM)),
    }


def _machine() -> str:
    """Its processor, cores and Python."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores of {names[0] if names else platform.machine()}, Python {platform.python_version()}"


def main() -> int:
    parser = Arguments(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=at_least(2, "ROUNDS"), default=10)
    parser.add_argument(
        "--orders", type=at_least(2 * _MEMORY_FROM, "ORDERS"), default=3_000, help="until memory is read"
    )
    parser.add_argument("--warm", action="store_true", help="leave out what needs `sam build`")
    parser.add_argument("--write", action="store_true", help="write results.json, docs/speed.svg, the READMEs' tables")
    parser.add_argument("--profile", action="store_true", help="write profiles/*.txt instead")
    options = parser.parse_args()

    def program(console: Console) -> int:
        if not functions.PACKAGES.exists():
            console.print("not started: .venv/opt/bench is missing; `make bench` installs it", style="red")
            return 2
        try:
            if options.profile:
                write_profiles()
                return 0
            run = bench(options.rounds, options.orders, is_built=not options.warm, console=console)
        except WorkFailed as failed:
            console.print(f"no result: {failed}", style="bold red", markup=False)
            return 1
        Console(width=None if sys.stdout.isatty() else 170).print(for_the_terminal(run))
        (PROJECT / ".local").mkdir(exist_ok=True)
        (PROJECT / ".local/bench.json").write_text(run.to_json())
        if options.write:
            RESULTS.write_text(run.to_json())
            PICTURE.write_text(svg(run))
            write_into_readmes(run)
        return 0

    return run_in_terminal(program)


if __name__ == "__main__":
    sys.exit(main())
