"""layers/requirements: what `make requirements` compiles into pinned packages."""

import re

from local.project_files import PROJECT

REQUIREMENTS = PROJECT / "layers/requirements"


def test_each_file_that_is_named_exists() -> None:
    """`-r` and `-c` name files beside the one that names them; without one of them nothing compiles."""
    named = {
        each.parent / name
        for each in REQUIREMENTS.glob("*.in")
        for name in re.findall(r"^-[rc] (\S+)", each.read_text(), re.MULTILINE)
    }
    assert named
    assert [each for each in named if not each.is_file()] == []
