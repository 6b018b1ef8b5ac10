"""`make new`: a copy of this project under a name of its own, without the lab and without history."""

import argparse
import importlib.util
import keyword
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
NAME = "onecharge"
LEFT_OUT = (
    "lab/survival",
    "lab/speed",
    "lab/costs",
    "lab/publish",
    "lab/targets",
    "lab/tests/test_survival",
    "lab/tests/test_speed",
    "lab/tests/test_costs",
    "layers/requirements/bench",
    "docs/survival.svg",
    "docs/speed.svg",
)
"""How the paths begin that a new project does not have."""
VERBATIM = ("LICENSE", "NOTICE")


def refusal(folder: Path, name: str) -> str:
    """Why the project cannot be made there or under this name, which must not make lines longer; empty if it can."""
    if not re.fullmatch(r"[a-z][a-z0-9]+", name) or len(name) > len(NAME):
        return f"NAME={name} has to be 2 to {len(NAME)} letters a-z and digits, first a letter, as NAME=shop"
    if keyword.iskeyword(name) or importlib.util.find_spec(name):
        return f"NAME={name} is the name of a Python module already"
    if folder.is_relative_to(PROJECT):
        return f"DIR={folder} is inside this project: name a folder beside it, as DIR=../shop"
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        return f"DIR={folder} exists and is not an empty folder"
    return ""


def files_of_the_project() -> Iterator[str]:
    """The paths that git tracks; in a copy without git, those that .gitignore does not name."""
    if (PROJECT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True)
        yield from (path for path in listed.stdout.split("\0") if path and (PROJECT / path).is_file())
        return
    ignored = [pattern.rstrip("/") for pattern in (PROJECT / ".gitignore").read_text().split()]
    for folder, folders, names in PROJECT.walk():
        folders[:] = [each for each in folders if not any(fnmatch(each, pattern) for pattern in ignored)]
        kept = [each for each in names if not any(fnmatch(each, pattern) for pattern in ignored)]
        yield from (str((folder / each).relative_to(PROJECT)) for each in kept)


def renamed(text: str, name: str) -> str:
    """The text with this project's name replaced, in its three spellings."""
    for ours, theirs in (NAME, name), (NAME.upper(), name.upper()), (NAME.capitalize(), name.capitalize()):
        text = text.replace(ours, theirs)
    return text


def without_left_out(path: str, markdown: str) -> str:
    """The document without the sections that show a picture of what is left out, and the lines that link to it."""

    def is_left_out(link: str) -> bool:
        return posixpath.normpath(posixpath.join(posixpath.dirname(path), link)).startswith(LEFT_OUT)

    sections = re.split(r"(?m)^(?=## )", markdown)
    kept = "".join(each for each in sections if not any(map(is_left_out, re.findall(r"!\[.*?\]\((.+?)\)", each))))
    lines = kept.splitlines(keepends=True)
    return "".join(each for each in lines if not any(map(is_left_out, re.findall(r"\]\((.+?)\)", each))))


def make_project(folder: Path, name: str) -> None:
    """Write the files of the new project."""
    for path in files_of_the_project():
        if path.startswith(LEFT_OUT):
            continue
        target = folder / renamed(path, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / path, target)
        if path not in VERBATIM and b"\0" not in target.read_bytes():
            text = target.read_text()
            target.write_text(renamed(without_left_out(path, text) if path.endswith(".md") else text, name))
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    # Another name is sorted in other places, and fits into other lines.
    for command in (["check", "--fix", "--quiet", "--no-cache", "."], ["format", "--quiet", "--no-cache", "."]):
        subprocess.run([sys.executable, "-m", "ruff", *command], cwd=folder, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make new", description=__doc__)
    for option in ("--dir", "--name"):
        parser.add_argument(option, required=True)
    options = parser.parse_args()
    if reason := refusal(folder := Path(options.dir).resolve(), options.name):
        print(f"{reason}. Nothing was written.", file=sys.stderr)
        return 2
    make_project(folder, options.name)
    print(f"{options.name} is in {folder}: try `make demo` there. docs/guides/leave-out.md says which parts can go.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
