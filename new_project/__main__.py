"""`make new DIR=../shop-payments [WITH="refunds webhook"] [NAME=shop]`: write a project of one's own."""

import argparse
import fnmatch
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from new_project.choices import Choices, Refused, choices
from new_project.markers import BadMarker
from new_project.project import new_project

PROJECT = Path(__file__).resolve().parent.parent


class NotTidied(Exception):
    """The files were cut, and a tool that tidies them up refuses the result: a marker is missing somewhere."""


def main(arguments: Sequence[str]) -> int:
    """Write the project; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make new", description=__doc__)
    parser.add_argument("folder", metavar="DIR", nargs="?", default="")
    parser.add_argument("--with", metavar="PARTS", dest="parts", default="")
    parser.add_argument("--name", metavar="NAME", default="")
    given = parser.parse_args(arguments)
    try:
        chosen = choices(given.folder, given.parts, given.name, project=PROJECT, taken=taken_names(PROJECT))
        write(new_project(read_project(PROJECT), chosen.parts, chosen.name), chosen)
    except (Refused, BadMarker, NotTidied, OSError) as reason:
        print(f"make new: {reason}", file=sys.stderr)
        return 2
    print(f"{chosen.name} is in {chosen.folder}, with: {' '.join(sorted(chosen.parts)) or 'the bare core'}")
    print(f"Next: cd '{chosen.folder}', git init, make demo")
    return 0


def taken_names(project: Path) -> set[str]:
    """The names of the project's folders and functions, and of every package that is installed."""
    folders = [*project.iterdir(), *(project / "functions").iterdir()]
    own = {path.stem for path in folders} - {"onecharge"}
    return own | set(importlib.metadata.packages_distributions())


def read_project(project: Path) -> dict[str, str]:
    """The project's files by their path: those that git tracks, or without git those that .gitignore does not name."""
    return {path: (project / path).read_text() for path in _tracked(project) or list(_not_ignored(project))}


def _tracked(project: Path) -> list[str]:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=project, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [path for path in listed.stdout.split("\0") if path and (project / path).is_file()]


def _not_ignored(project: Path) -> Iterator[str]:
    ignored = [".git", *(line.rstrip("/") for line in (project / ".gitignore").read_text().split())]
    for path in sorted(project.rglob("*")):
        inside = path.relative_to(project)
        if path.is_file() and not any(fnmatch.fnmatch(part, each) for part in inside.parts for each in ignored):
            yield inside.as_posix()


def write(files: Mapping[str, str], chosen: Choices) -> None:
    """Write the files and tidy them up, then give the folder its name: a run that fails leaves nothing behind."""
    chosen.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=chosen.folder.parent, prefix=f".{chosen.folder.name}-") as scratch:
        draft = Path(scratch) / "project"
        for path, text in files.items():
            target = draft / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            if text.startswith("#!"):
                target.chmod(0o755)
        tidy(draft)
        if chosen.folder.exists():
            chosen.folder.rmdir()
        draft.rename(chosen.folder)


def tidy(project: Path) -> None:
    """Drop the imports that nobody needs any more, format, and describe the API anew. Raises NotTidied."""
    ruff = str(Path(sys.executable).with_name("ruff"))
    _run([ruff, "check", "--no-cache", "--quiet", "--fix", "."], project)
    _run([ruff, "format", "--no-cache", "--quiet", "."], project)
    # Nobody breaks the lines of comments and docstrings in which the new name is longer than the old one.
    _run([ruff, "check", "--no-cache", "--quiet", "--select", "E501", "--add-noqa", "."], project)
    _run([sys.executable, "-m", "local.openapi"], project)


def _run(command: Sequence[str], project: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(project / folder) for folder in ("functions", "shared", ".")),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotTidied(f"{Path(command[0]).name} {command[1]} failed in the new project:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
