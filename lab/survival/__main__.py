"""`make survival`: which designs charge once under which fault.

`--write` updates results.json, and publishes it: docs/survival.svg, docs/survival.html, README's table.
`--publish` only publishes the results.json that is there; the page's schedules are recorded again.

`--trace FAULT DESIGN` instead prints one schedule, line by line: the first in which the design fails, if there is one.
"""

import os
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lab.publish import write_table
from lab.survival.designs import DESIGNS
from lab.survival.faults import FAULTS
from lab.survival.libraries import virtual_clock
from lab.survival.page import PAGE, page
from lab.survival.report import PICTURE, README, for_the_terminal, in_markdown, svg
from lab.survival.results import RESULTS, FaultNeverOccurred, Results, run_all, schedule
from local.arguments import Arguments, at_least, seed, until_stopped


def trace(fault: str, design: str, *, schedules: int, seed: int) -> str:
    """The timeline of the first schedule that fails, or of the last one if none fails."""
    lines: list[str] = []
    with virtual_clock() as clock:
        for number in range(schedules):
            world = schedule(DESIGNS[design], FAULTS[fault], seed, number, clock, tracing=True)
            charges = world.run().charges
            lines = [f"{note.seconds:>9,} s  {note.text}" for note in world.timeline or []]
            if charges != 1:
                break
    return "\n".join([f"{design} under {fault!r}, schedule {number} of seed {seed}:", *lines])


def measure(schedules: int, seed: int, processes: int) -> Results:
    """Run all schedules of all cells, with a progress bar on a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        cells = sum(fault not in design.excluded_faults for fault in FAULTS for design in DESIGNS.values())
        bar = progress.add_task("schedules", total=cells * schedules)
        return run_all(schedules, seed, processes=processes, progress=lambda done: progress.update(bar, advance=done))


def publish(results: Results) -> None:
    PICTURE.write_text(svg(results))
    PAGE.write_text(page(results))
    write_table(README, in_markdown(results))


def main() -> int:
    parser = Arguments(prog="make survival", description=__doc__)
    parser.add_argument("--schedules", type=at_least(1, "SCHEDULES"), default=10_000, help="for each cell of the table")
    parser.add_argument("--seed", type=seed, default=1)
    parser.add_argument("--processes", type=at_least(1, "--processes"), default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="write results.json, and publish it")
    parser.add_argument("--publish", action="store_true", help="publish results.json without running the table")
    parser.add_argument("--trace", nargs=2, metavar=("FAULT", "DESIGN"), help="print one failing schedule")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 170)
    if options.trace:
        fault, design = options.trace
        if fault not in FAULTS or design not in DESIGNS:
            parser.error(f"faults: {', '.join(FAULTS)}; designs: {', '.join(DESIGNS)}")
        console.print(trace(fault, design, schedules=options.schedules, seed=options.seed), highlight=False)
        return 0
    if options.publish:
        publish(Results.of_json(RESULTS.read_text()))
        return 0
    try:
        results = measure(options.schedules, options.seed, options.processes)
    except FaultNeverOccurred as error:
        console.print(f"no result: {error}", style="bold red")
        return 1
    console.print(for_the_terminal(results))
    if options.write:
        RESULTS.write_text(results.to_json())
        publish(results)
    return 0


if __name__ == "__main__":
    sys.exit(until_stopped(main))
