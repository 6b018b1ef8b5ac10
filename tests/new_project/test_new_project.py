"""The files of a new project, from this one's: nothing of a part that is not chosen, and nothing of this one's name."""

import ast
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from new_project.__main__ import read_project
from new_project.parts import FILES, ORIGINAL, PARTS, conditions_of
from new_project.project import new_project

PROJECT = Path(__file__).resolve().parents[2]
FILES_HERE = read_project(PROJECT)
SELECTIONS = [set(), *({part} for part in PARTS), {"refunds", "webhook"}, set(PARTS)]


@pytest.mark.parametrize(("condition", "glob"), [(condition, glob) for condition, globs in FILES for glob in globs])
def test_every_entry_of_the_table_matches_a_file(condition: str, glob: str) -> None:
    """One that matches none is of a file that was moved, and has become part of the core unseen."""
    assert any(fnmatchcase(path, glob) for path in FILES_HERE), condition


@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda each: " ".join(sorted(each)) or "core")
def test_every_marker_is_well_formed_and_none_stays(selection: set[str]) -> None:
    """In every selection the files can be cut, and are still there as files that have a use."""
    made = new_project(FILES_HERE, selection, "shop")
    assert {"README.md", "template.yaml", "shared/shop/payments/charges/protocol.py"} <= made.keys()
    marked = [path for path, text in made.items() if re.search(r"(# |<!-- )(=+ )?(end )?optional\b", text)]
    assert marked == []


@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda each: " ".join(sorted(each)) or "core")
def test_what_is_left_of_each_module_is_python(selection: set[str]) -> None:
    """A marker at the end of a line that the formatter has broken in two would cut half a statement."""
    for path, text in new_project(FILES_HERE, selection, "shop").items():
        if path.endswith(".py"):
            ast.parse(text, path)


def test_all_parts_are_all_of_this_project() -> None:
    """But for what only this project has."""
    made = new_project(FILES_HERE, set(PARTS), "onecharge")
    own = {path for path in FILES_HERE if ORIGINAL in conditions_of(path)}
    assert FILES_HERE.keys() - made.keys() == own - {"README.md", "CHANGELOG.md"}


def test_the_name_is_replaced_everywhere() -> None:
    """In paths and texts, however it is spelled; but for the license, and where the new project comes from."""
    made = new_project(FILES_HERE, set(PARTS), "shop")
    named = {path for path, text in made.items() if "onecharge" in (path + text).lower()}
    assert named <= {"README.md", "LICENSE", "NOTICE"}
