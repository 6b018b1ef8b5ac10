"""From the files of this project to those of a new one: pure, text in and text out."""

from collections.abc import Collection, Mapping

from new_project.markers import cut
from new_project.parts import SKELETON, conditions_of, is_kept

OWN_NAME = "onecharge"

_VERBATIM = ("LICENSE", "NOTICE")
"""Legal texts: neither cut nor renamed."""

_NAME_IN_SKELETON, _PARTS_IN_SKELETON = "PROJECT_NAME", "PROJECT_PARTS"


def new_project(files: Mapping[str, str], chosen: Collection[str], name: str) -> dict[str, str]:
    """The files of the new project, by their path.

    Args:
        files: this project's, by their path.
        chosen: names of PARTS.
        name: one lower-case word, which replaces this project's in code, template and documents.

    Raises:
        BadMarker: a file of this project is marked wrongly.
    """
    made = {}
    for path, text in files.items():
        if not all(is_kept(condition, chosen) for condition in conditions_of(path)):
            continue
        made[renamed(path, name)] = text if path in _VERBATIM else renamed(cut(path, text, chosen), name)
    for path, text in files.items():
        if path.startswith(SKELETON):
            own = path.removeprefix(SKELETON)
            made[own] = _filled_in(cut(own, text, chosen), chosen, name)
    return made


def renamed(text: str, name: str) -> str:
    """The text with the project's name replaced, in its three spellings."""
    for own, new in (OWN_NAME, name), (OWN_NAME.capitalize(), name.capitalize()), (OWN_NAME.upper(), name.upper()):
        text = text.replace(own, new)
    return text


def _filled_in(text: str, chosen: Collection[str], name: str) -> str:
    parts = ", ".join(sorted(chosen)) or "none"
    return text.replace(_NAME_IN_SKELETON, name).replace(_PARTS_IN_SKELETON, parts)
