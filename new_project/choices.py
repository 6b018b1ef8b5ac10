"""What was asked for on the command line, or why it cannot be."""

import keyword
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from new_project.parts import PARTS

NAME_MAX = 19
"""Characters: the name is part of stack names, with "-prod" 24 of them, of bucket names and import paths."""


class Refused(Exception):
    """It cannot be made as asked; says in one line why and what can be asked for."""


@dataclass(frozen=True)
class Choices:
    """A folder to write to, the parts to keep, the new name."""

    folder: Path
    parts: frozenset[str]
    name: str


def choices(folder: str, parts: str, name: str, *, project: Path, taken: Collection[str]) -> Choices:
    """Read them.

    Args:
        folder: a path; does not exist yet, or is empty.
        parts: names of PARTS, with spaces or commas between them; or "all".
        name: empty for one that is made of the folder's.
        project: this project's folder.
        taken: names that a module or folder of the project has.

    Raises:
        Refused: one of them is not possible.
    """
    path = _folder(folder, project)
    return Choices(path, _parts(parts), _name(name, path, taken))


def _folder(given: str, project: Path) -> Path:
    if not given.strip():
        raise Refused(f'DIR is missing: make new DIR=../shop-payments [WITH="refunds webhook"] [NAME=shop]. {_KNOWN}')
    path = Path(given).expanduser().resolve()
    if path.is_relative_to(project):
        raise Refused(f"DIR={given} is inside this project: name a folder beside it, as ../shop-payments")
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise Refused(f"DIR={given} exists and is not an empty folder: nothing was written")
    return path


def _parts(given: str) -> frozenset[str]:
    chosen = frozenset(PARTS) if given.strip() == "all" else frozenset(re.findall(r"[^\s,]+", given))
    if unknown := sorted(chosen - PARTS.keys()):
        raise Refused(f"WITH names no part of this project: {' '.join(unknown)}. {_KNOWN}")
    return chosen


def _name(given: str, folder: Path, taken: Collection[str]) -> str:
    name = given or re.sub(r"[^a-z0-9]", "", folder.name.lower())[:NAME_MAX]
    if not re.fullmatch(rf"[a-z][a-z0-9]{{1,{NAME_MAX - 1}}}", name):
        raise Refused(f"NAME={name} is no name: 2 to {NAME_MAX} letters a-z and digits, first a letter, as NAME=shop")
    if keyword.iskeyword(name) or name in sys.stdlib_module_names or name in taken:
        raise Refused(f"NAME={name} is taken by a Python module: choose another, as NAME=shop")
    return name


_KNOWN = f"Parts: {' '.join(PARTS)}, or all; without WITH, the bare core."
