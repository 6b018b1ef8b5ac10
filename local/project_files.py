"""Which files are this project's."""

import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


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
