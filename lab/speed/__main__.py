"""`make bench`: what a user pays and waits for, beside what people copy. It measures; no figure makes it fail.

`--write` also updates results.json, docs/speed.svg and the table of lab/speed/README.md.
"""

import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from lab.publish import write_table
from lab.speed.functions import PACKAGES, WorkFailed, compile_all, running_servers
from lab.speed.measure import measure, measure_cold_starts
from lab.speed.report import PICTURE, README, for_the_terminal, in_markdown, svg
from lab.speed.results import RESULTS, Run
from lab.speed.shops import running_shops
from local.arguments import Arguments, at_least
from local.deployment import Sam
from local.terminal import run_in_terminal
from tests.support.harness import PROJECT

_VERSIONS = ("aws-lambda-powertools", "boto3", "pydantic", "stripe")


def bench(rounds: int, console: Console) -> Run:
    """Build, measure everything. Raises StartupError, WorkFailed."""
    run = Run(
        at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        machine=_machine(),
        rounds=rounds,
        versions={name: version(name) for name in _VERSIONS},
    )
    compile_all(PACKAGES)
    with tempfile.TemporaryDirectory() as folder, console.status("building with `sam build`") as status:
        work_dir, tools = Path(folder), PROJECT / ".venv"
        sam = Sam(program=tools / "opt/sam/bin/sam", python=tools / "bin/python", project=PROJECT, work_dir=work_dir)
        built = sam.build().parent
        with running_servers(work_dir) as servers, running_shops(servers, built) as shops:
            measure(shops, servers, run, status.update)
            measure_cold_starts(shops, servers, work_dir, run, status.update)
    return run


def _machine() -> str:
    """Its processor, cores and Python."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores of {names[0] if names else platform.machine()}, Python {platform.python_version()}"


def main() -> int:
    parser = Arguments(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=at_least(2, "ROUNDS"), default=8)
    parser.add_argument("--write", action="store_true", help="keep the results")
    options = parser.parse_args()

    def program(console: Console) -> int:
        if not PACKAGES.exists():
            console.print("not started: .venv/opt/bench is missing; `make bench` installs it", style="red")
            return 2
        try:
            run = bench(options.rounds, console)
        except WorkFailed as failed:
            console.print(f"no result: {failed}", style="bold red", markup=False)
            return 1
        Console(width=None if sys.stdout.isatty() else 170).print(for_the_terminal(run))
        if options.write:
            RESULTS.write_text(run.to_json())
            PICTURE.write_text(svg(run))
            write_table(README, in_markdown(run))
        return 0

    return run_in_terminal(program)


if __name__ == "__main__":
    sys.exit(main())
