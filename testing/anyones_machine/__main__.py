"""`make machines`: what goes wrong on anyone's machine ends in one line that says what to do, and the next run works.

Clones a commit into folders with hostile names, runs one case after the other, and prints a row for each: what went
wrong, how it ended, the last line, and whether that is as it has to be. The cases that need an installation share one.
Needs Python 3.13, make, git, bash and Linux, and for the first installation the package index.
"""

import json
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from testing.anyones_machine.cases import Case, Skipped, wrong_with
from testing.anyones_machine.catalog import CASES
from testing.anyones_machine.checkout import Checkout, Result
from testing.arguments import Arguments

PROJECT = Path(__file__).resolve().parent.parent.parent


def run_case(case: Case, commit: str, folder: Path, name: str) -> dict[str, object]:
    """One row of the table."""
    own = re.sub(r"\W+", "-", case.name)
    name = case.folder or (f"{name}-{own}" if case.is_bare else name)
    try:
        result, problem = case.run(Checkout.of(PROJECT, commit, folder / name))
    except Skipped as reason:
        return {"case": case.name, "skipped": str(reason)}
    except Exception as reason:  # A case that cannot even be run has failed; the others go on.
        result, problem = Result(-1, "", 0), f"{type(reason).__name__}: {reason}"
    return {
        "case": case.name,
        "exit": result.exit_code,
        "lines": len(result.lines),
        "seconds": round(result.seconds),
        "last line": result.last_line[:200],
        "wrong": wrong_with(case, result, problem),
        "output": result.output[-3000:],
    }


def show(row: dict[str, object]) -> None:
    if "skipped" in row:
        print(f"-  {row['case']}: skipped, {row['skipped']}", flush=True)
        return
    mark = f"NOT OK ({row['wrong']})" if row["wrong"] else "ok"
    print(f"{'✗' if row['wrong'] else '✓'}  {row['case']}: {mark}", flush=True)
    print(f"     exit {row['exit']}, {row['lines']} lines, {row['seconds']} s: {row['last line']}", flush=True)


def run_all(cases: Sequence[Case], commit: str, folder: Path, name: str) -> list[dict[str, object]]:
    rows = []
    for case in cases:
        rows.append(run_case(case, commit, folder, name))
        show(rows[-1])
    return rows


def main() -> int:
    parser = Arguments(prog="make machines", description=__doc__)
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--cases", default="", help="only those with one of these in their names: a, b")
    parser.add_argument("--name", default="my shop (Zoë's)", help="of the checkout's folder")
    parser.add_argument("--folder", type=Path, default=None, help="keep the clones there; else they are temporary")
    parser.add_argument("--rows", type=Path, default=None, help="write all rows there as JSON, with their output")
    options = parser.parse_args()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A shell that starts this in the background has the first one ignored, and so would be all that it starts.
        signal.signal(each, signal.SIG_DFL)
    wanted = re.split(r", *", options.cases)
    cases = [case for case in CASES if any(text in case.name for text in wanted)]
    with nullcontext(options.folder) if options.folder else tempfile.TemporaryDirectory() as folder:
        rows = run_all(cases, options.commit, Path(folder).resolve(), options.name)
    if options.rows:
        options.rows.write_text(json.dumps(rows, indent=1, ensure_ascii=False))
    wrong = sum(bool(row.get("wrong")) for row in rows)
    print(f"{len(rows)} cases, {wrong} not ok, {sum('skipped' in row for row in rows)} skipped")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
