"""The layout keeps its promises: nothing imports upwards, and importing a module reads no environment."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from testing.harness import PROJECT

FUNCTIONS = sorted(path.parent.name for path in (PROJECT / "functions").glob("*/app.py"))
LAYER = sorted((PROJECT / "shared/onecharge").rglob("*.py"))
MODULES = sorted((PROJECT / "functions").glob("*/*.py")) + LAYER


def imported_by(module: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(module.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names} & {*FUNCTIONS, "onecharge"}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_nothing_imports_upwards(module: Path) -> None:
    """A function imports itself and the layer; the layer imports nobody."""
    allowed = {"onecharge"} if module in LAYER else {"onecharge", module.parent.name}
    assert imported_by(module) <= allowed


def test_what_is_shared_is_shared() -> None:
    """Each module of the layer is used by two functions, or by a module of the layer that is."""
    sources = {path: path.read_text() for path in MODULES}
    for module in LAYER:
        name = ".".join(module.relative_to(PROJECT / "shared").with_suffix("").parts)
        users = [path for path, source in sources.items() if f"from {name} import" in source]
        by_the_layer = any(path in LAYER for path in users)
        assert module.stem == "__init__" or by_the_layer or len({path.parent for path in users}) >= 2, name


@pytest.mark.parametrize("function", FUNCTIONS)
def test_importing_reads_no_environment(function: str) -> None:
    """With none of its variables set, and without opening a connection."""
    guard = (
        "import socket, sys\n"
        "sys.addaudithook(lambda event, _: sys.exit(event) if event.startswith('socket.connect') else None)\n"
        f"import {function}.app\n"
    )
    paths = f"{PROJECT / 'functions'}:{PROJECT / 'shared'}"
    subprocess.run([sys.executable, "-c", guard], env={"PYTHONPATH": paths}, check=True, timeout=60)
