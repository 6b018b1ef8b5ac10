"""`make new`: a copy of this project under a name of its own, without history; with the lab only if it is asked for."""

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
LEFT_OUT = ("lab/", "layers/requirements/bench", "docs/survival.svg", "docs/speed.svg")
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
    """The document without the sections that show a picture of what is left out, and without the paragraphs, table rows
    and list items that link to it or name one of its commands.
    """

    def is_left_out(link: str) -> bool:
        return f"{posixpath.normpath(posixpath.join(posixpath.dirname(path), link))}/".startswith(LEFT_OUT)

    targets = set(re.findall(r"(?m)^([a-z-]+):", (PROJECT / "lab/targets.mk").read_text()))

    def names_it(text: str) -> bool:
        commands = re.findall(r"`make ([a-z0-9-]+)", text)
        return any(map(is_left_out, re.findall(r"\]\((.+?)\)", text))) or not targets.isdisjoint(commands)

    sections = re.split(r"(?m)^(?=## )", markdown)
    kept = "".join(each for each in sections if not any(map(is_left_out, re.findall(r"!\[.*?\]\((.+?)\)", each))))
    paragraphs = re.split(r"(\n\n+|\n(?=\||- |\d+\. ))", kept)
    # Each is followed by what separates it from the next one.
    pairs = zip(paragraphs[::2], [*paragraphs[1::2], ""], strict=True)
    return "".join(text + separator for text, separator in pairs if not names_it(text))


def make_project(folder: Path, name: str, *, with_lab: bool = False) -> None:
    """Write the files of the new project."""
    for path in files_of_the_project():
        if path.startswith(LEFT_OUT) and not with_lab:
            continue
        target = folder / renamed(path, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / path, target)
        if path not in VERBATIM and b"\0" not in target.read_bytes():
            text = target.read_text()
            is_cut = path.endswith(".md") and not with_lab and (PROJECT / "lab").is_dir()
            target.write_text(renamed(without_left_out(path, text) if is_cut else text, name))
    (folder / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    # Another name is sorted in other places, and fits into other lines.
    for command in (["check", "--fix", "--quiet", "--no-cache", "."], ["format", "--quiet", "--no-cache", "."]):
        subprocess.run([sys.executable, "-m", "ruff", *command], cwd=folder, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make new", description=__doc__)
    for option in ("--dir", "--name"):
        parser.add_argument(option, required=True)
    parser.add_argument("--with", dest="extra", choices=("lab",), help="the lab, too")
    options = parser.parse_args()
    if reason := refusal(folder := Path(options.dir).resolve(), options.name):
        print(f"{reason}. Nothing was written.", file=sys.stderr)
        return 2
    make_project(folder, options.name, with_lab=options.extra == "lab")
    print(f"{options.name} is in {folder}: try `make demo` there. docs/guides/leave-out.md says which parts can go.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
