"""`make new`: a copy of this project under a name of its own, without its history and the parts that it does not need.

local/recipe.py says what makes up a part.
"""

import argparse
import importlib.util
import keyword
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from local.project_files import PROJECT, files_of_the_project
from local.recipe import PARTS, Part, RecipeError, edited, load, misfits

NAME = "onecharge"
NAME_MAX = 20
VERBATIM = ("LICENSE", "NOTICE")
README = "local/new_readme.txt"
_LINE_MAX = 120
_MODULE = (
    rf"(?<=from ){NAME}|(?<=import ){NAME}|(?<=shared/){NAME}|(?<=python/){NAME}"
    rf"|{NAME}(?=[.](?:contract|orders|payments|runtime|__init__)\b)"
)
"""Where the name is that of the Python package; elsewhere it is that of the shop."""
_NAMES_MODULES = ("tests/unit/test_layout.py", "lab/")


def refusal(folder: Path, name: str, without: Iterable[str] = ()) -> str:
    """Why the project cannot be made there, under this name or without these; empty if it can."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or not 2 <= len(name) <= NAME_MAX:
        return f"NAME={name} has to be 2 to {NAME_MAX} letters a-z, digits and hyphens, as NAME=corner-shop"
    if keyword.iskeyword(module := module_name(name)) or importlib.util.find_spec(module):
        return f"NAME={name} is the name of a Python module already"
    if unknown := sorted(set(without) - set(PARTS)):
        return f"WITHOUT={unknown[0]} is not a part; these are: {' '.join(PARTS)}"
    if folder.is_relative_to(PROJECT):
        return f"DIR={folder} is inside this project: name a folder beside it, as DIR=../shop"
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        return f"DIR={folder} exists and is not an empty folder"
    return ""


def module_name(name: str) -> str:
    """The Python package's name."""
    return name.replace("-", "_")


def renamed(path: str, text: str, name: str) -> str:
    """The text of this file with this project's name replaced."""
    text = re.sub(NAME if path.startswith(_NAMES_MODULES) else _MODULE, module_name(name), text)
    # Customers read it as words.
    return text.replace(NAME, name).replace(NAME.capitalize(), name.replace("-", " ").capitalize())


def without_what_is_gone(path: str, markdown: str, is_gone: Callable[[str], bool], commands: set[str]) -> str:
    """The document without the sections that show a picture that is gone, and without paragraphs, table rows and list
    items that link to a file that is gone, or name one of these commands, which the copy does not have.
    """

    def leads_nowhere(link: str) -> bool:
        target = link.partition("#")[0]
        return "://" not in link and is_gone(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)))

    def names_it(text: str) -> bool:
        named = re.findall(r"`make ([a-z0-9-]+)", text)
        return any(map(leads_nowhere, re.findall(r"\]\((.+?)\)", text))) or not commands.isdisjoint(named)

    sections = re.split(r"(?m)^(?=## )", markdown)
    kept = "".join(each for each in sections if not any(map(leads_nowhere, re.findall(r"!\[.*?\]\((.+?)\)", each))))
    paragraphs = re.split(r"(\n\n+|\n(?=\||- |\d+\. ))", kept)
    # Each is followed by what separates it from the next one.
    pairs = zip(paragraphs[::2], [*paragraphs[1::2], ""], strict=True)
    return "".join(text + separator for text, separator in pairs if not names_it(text))


def texts_without(parts: Iterable[Part]) -> dict[str, str | None]:
    """The files of this project that remain without these parts, with their texts; None if it is no text."""
    parts, ours = list(parts), sorted(files_of_the_project())
    contents = {path: (PROJECT / path).read_bytes() for path in ours}
    known = {path: content.decode(errors="replace") for path, content in contents.items()}
    if wrong := [each for part in parts for each in misfits(part, known)]:
        raise RecipeError("\n".join(wrong))
    texts: dict[str, str | None] = {
        path: None if b"\0" in content else edited(path, content.decode(), parts)
        for path, content in contents.items()
        if not any(part.deletes(path) for part in parts)
    }
    texts["README.md"] = edited(README, known[README], parts)
    texts["CHANGELOG.md"] = "# Changelog\n\n## Unreleased\n"
    lost = _folders(ours) - _folders(texts)
    commands = _targets(known["Makefile"]) | _targets(known["lab/targets.mk"])
    commands -= _targets(texts["Makefile"] or "") | _targets(texts.get("lab/targets.mk") or "")
    for path, text in texts.items():
        if text and path.endswith(".md"):
            texts[path] = without_what_is_gone(path, text, lost.__contains__, commands)
    return texts


def _folders(paths: Iterable[str]) -> set[str]:
    """The paths, and the folders that they are in."""
    return {each for path in paths for each in (path, *map(str, Path(path).parents))}


def _targets(makefile: str) -> set[str]:
    return set(re.findall(r"(?m)^([a-z][a-z0-9-]*):", makefile))


def make_project(folder: Path, name: str, *, without: Iterable[str] = (), with_lab: bool = False) -> None:
    """Write the files of the new project."""
    parts = [load(each) for each in ("reference", *(() if with_lab else ("lab",)), *without)]
    for path, text in texts_without(parts).items():
        target = folder / renamed(path, path, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if text is None or path in VERBATIM:
            shutil.copy(PROJECT / path, target)
        else:
            target.write_text(renamed(path, text, name))
            if (PROJECT / path).exists():
                shutil.copymode(PROJECT / path, target)
    # Another name is sorted in other places, and fits into other lines; what is left out is imported by nobody.
    for command in (["check", "--fix-only", "--quiet", "--no-cache", "."], ["format", "--quiet", "--no-cache", "."]):
        subprocess.run([sys.executable, "-m", "ruff", *command], cwd=folder, check=True)
    if without:
        paths = os.environ | {"PYTHONPATH": "functions:shared:."}
        openapi = [sys.executable, "-m", "tests.support.openapi"]
        subprocess.run(openapi, cwd=folder, env=paths, check=True, stdout=subprocess.DEVNULL)
    longest = max(len(line) for path in folder.rglob("*.py") for line in path.read_text().splitlines())
    if longest > _LINE_MAX:
        # No formatter wraps a comment or a text that the longer name does not fit into.
        settings = folder / "pyproject.toml"
        settings.write_text(settings.read_text().replace('ignore = ["SIM905"]', 'ignore = ["SIM905", "E501"]'))


def commit(folder: Path) -> str:
    """Make the folder a git repository with a first commit; returns what is left to do, empty if nothing."""
    git = ["git", "-C", str(folder)]
    try:
        subprocess.run([*git, "init", "--quiet", "--initial-branch=main"], check=True, capture_output=True)
        subprocess.run([*git, "add", "--all"], check=True, capture_output=True)
        subprocess.run(
            [*git, "commit", "--quiet", "-m", "A shop of its own"], check=True, capture_output=True, text=True
        )
    except FileNotFoundError:
        return "git is missing, so it is no repository yet"
    except subprocess.CalledProcessError as error:
        return f"nothing is committed yet. git says: {str(error.stderr).strip()}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make new", description=__doc__)
    for option in ("--dir", "--name"):
        parser.add_argument(option, required=True)
    parser.add_argument("--with", dest="extra", choices=("lab",), help="the lab, too")
    parser.add_argument("--without", default="", help=f"parts, separated by spaces: {' '.join(PARTS)}")
    options = parser.parse_args()
    folder, without = Path(options.dir).resolve(), options.without.split()
    if reason := refusal(folder, options.name, without):
        print(f"{reason}. Nothing was written.", file=sys.stderr)
        return 2
    if without and options.extra:
        print("WITH=lab proves all parts: it cannot be combined with WITHOUT. Nothing was written.", file=sys.stderr)
        return 2
    try:
        make_project(folder, options.name, without=without, with_lab=options.extra == "lab")
    except RecipeError as error:
        print(f"local/parts/ does not fit the code, so nothing was written:\n{error}", file=sys.stderr)
        return 1
    left = commit(folder)
    print(f"{options.name} is in {folder}: try `make local` there. README.md says where to change it.")
    if left:
        print(f"But {left}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
