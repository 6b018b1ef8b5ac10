"""Where our CPU goes: profiles kept as text, written by `make bench PROFILE=1`."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.speed.functions import onecharge
from benchmarks.speed.measure import profile
from benchmarks.speed.servers import running_servers

FOLDER = Path(__file__).with_name("profiles")
_IMPORT_LINES_MAX = 80


def write_profiles() -> None:
    """Write fresh.txt, duplicates.txt and imports.txt. Raises StartupError, WorkFailed."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, running_servers(Path(folder)) as servers:
        for name, duplicates in (("fresh", False), ("duplicates", True)):
            (FOLDER / f"{name}.txt").write_text(_tidy(profile(onecharge(), servers, duplicates=duplicates)))
    (FOLDER / "imports.txt").write_text(imports())


def imports() -> str:
    """What importing charge_order imports, and the microseconds of each module, the slowest with all below it first."""
    variant = onecharge()
    code = f"import sys; sys.path[:0] = {[str(each) for each in variant.folders]!r}; import {variant.module}"
    said = subprocess.run(
        [sys.executable, "-I", "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    ).stderr.splitlines()
    head, *modules = [line for line in said if line.startswith("import time:")]
    slowest = sorted(modules, key=lambda line: -int(line.split("|")[1]))[:_IMPORT_LINES_MAX]
    return "\n".join([f"{len(modules)} modules", head, *slowest, ""])


def _tidy(text: str) -> str:
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip() + "\n"
