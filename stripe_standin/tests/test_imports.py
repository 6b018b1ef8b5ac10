"""The modules import each other in one direction."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

FOLDER = Path(__file__).parents[1]
NAME = "stripe_standin"


def imported_by(path: Path) -> set[str]:
    """The modules of the stand-in that a module names in an import, those under TYPE_CHECKING included."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == NAME:
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{NAME}."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith(f"{NAME}.")}
    return names


def test_imports_make_no_cycle() -> None:
    """Each module can be read with those below it alone; the account knows none of its objects."""
    imports = {path.stem: imported_by(path) for path in FOLDER.glob("*.py")}
    TopologicalSorter(imports).prepare()
    assert imports["account"] == {"keys", "messages"}
