"""`make scan`: every scanner, minus the suppressions; ends with 1 if anything is to be mended."""

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.scans.findings import Suppression, read_suppressions, stale, to_be_mended
from tests.scans.scanners import Scan, ScannerFailed, Scanners
from tests.support.harness import PROJECT

SUPPRESSIONS = Path(__file__).with_name("suppressions.toml")


def judged(name: str, scan: Scan, suppressions: list[Suppression], *, must_run: bool) -> tuple[list[str], str]:
    """What is wrong, line by line, and the scanner's one line of summary.

    Args:
        must_run: a scanner that was skipped is wrong.
    """
    if scan.failed:
        return [f"{name}: {scan.failed}"], "failed"
    if scan.skipped:
        return ([f"{name}: it has to run here, but {scan.skipped}"] if must_run else []), f"skipped: {scan.skipped}"
    own = [each for each in suppressions if each.scanner == name]
    mend = to_be_mended(scan.findings, own)
    wrong = [f"{name} {each.rule}: {each.where}: {each.message}" for each in mend]
    wrong += [f"{name} {each.rule}: {each.where}: stale, suppresses nothing" for each in stale(scan.findings, own)]
    accepted = len(scan.findings) - len(mend)
    return wrong, f"{scan.looked_at} judged, {len(mend)} to mend, {accepted} accepted with a reason"


def run(scanner: Callable[[], Scan]) -> Scan:
    """Its result; a scanner that fails does not keep the others from being read."""
    try:
        return scanner()
    except (ScannerFailed, OSError) as failed:
        return Scan(failed=str(failed))


def main() -> int:
    scanners = Scanners(PROJECT, PROJECT / ".venv/opt").all
    suppressions = read_suppressions(SUPPRESSIONS.read_text())
    must_run = bool(os.environ.get("SCANNERS_MUST_RUN"))
    everything_wrong: list[str] = []
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        for name, scan in zip(scanners, threads.map(run, scanners.values()), strict=True):
            wrong, summary = judged(name, scan, suppressions, must_run=must_run)
            everything_wrong += wrong
            print(f"{name:15} {summary}")
    print("\n".join(everything_wrong) or f"nothing to mend, in {time.monotonic() - started:.0f} s")
    return 1 if everything_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
