"""The project's folder, and which files are its."""

import subprocess
from pathlib import Path

_ABOVE = Path(__file__).resolve().parent.parent
PROJECT = _ABOVE if (_ABOVE / "template.yaml").exists() else Path.cwd()
"""Where template.yaml is: above this package, or, if that was installed from a wheel, where the command runs."""


def files_of_the_project() -> list[str]:
    """The paths that git tracks, of those that are there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.split("\0") if path and (PROJECT / path).is_file()]
