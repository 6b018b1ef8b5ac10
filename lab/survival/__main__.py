"""`make survival`: which designs charge once under which fault.

`--write` updates results.json, and publishes it: docs/survival.svg and docs/survival.html.
`--publish` only publishes the results.json that is there.
"""

import os
import sys

from rich.console import Console

from lab.survival.report import PAGE, PICTURE, for_the_terminal, page, svg
from lab.survival.results import RESULTS, FaultNeverOccurred, Results, run_all
from local.arguments import Arguments, at_least, seed, until_stopped


def publish(results: Results) -> None:
    PICTURE.write_text(svg(results))
    PAGE.write_text(page(results))


def main() -> int:
    parser = Arguments(prog="make survival", description=__doc__)
    parser.add_argument("--schedules", type=at_least(1, "SCHEDULES"), default=1_000, help="for each cell of the table")
    parser.add_argument("--seed", type=seed, default=1)
    parser.add_argument("--processes", type=at_least(1, "--processes"), default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="write results.json, and publish it")
    parser.add_argument("--publish", action="store_true", help="publish results.json without running the table")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150)
    if options.publish:
        publish(Results.of_json(RESULTS.read_text()))
        return 0
    try:
        results = run_all(options.schedules, options.seed, processes=options.processes)
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
