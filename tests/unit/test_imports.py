"""Importing a module has no effects; `make lint` checks who may import whom (pyproject.toml)."""

import subprocess
import sys

from tests.support.harness import PROJECT


def test_importing_reads_no_environment_and_opens_no_connection() -> None:
    """With no variable set, every module of the functions and the layer is imported in one process."""
    program = (
        "import importlib, sys\n"
        "sys.addaudithook(lambda event, _: sys.exit(event) if event.startswith('socket.connect') else None)\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
    )
    roots = [PROJECT / "functions", PROJECT / "shared"]
    paths = [path.relative_to(root).with_suffix("") for root in roots for path in root.rglob("*.py")]
    assert len(paths) > 50
    path = ":".join(map(str, roots))
    command = [sys.executable, "-c", program, *(".".join(each.parts) for each in paths)]
    subprocess.run(command, env={"PYTHONPATH": path}, check=True, timeout=120)
