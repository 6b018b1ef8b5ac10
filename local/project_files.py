"""Which files are this project's."""

import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def files_of_the_project() -> list[str]:
    """The paths that git tracks, of those that are there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.split("\0") if path and (PROJECT / path).is_file()]
