"""The former release's code, out of git's history."""

import io
import subprocess
import tarfile
from pathlib import Path

FOLDERS = ("functions", "shared", "testing", "local", "events", "template.yaml")
"""What a release needs to run in its own folder; see release.py."""


class NoFormerRelease(Exception):
    """There is none here; the text says why, and what to do."""


def named_release(project: Path) -> str:
    """The git revision of the former release, as the file FORMER_RELEASE beside this module names it.

    Raises:
        NoFormerRelease: no release is named yet.
    """
    path = project / "testing/two_versions/FORMER_RELEASE"
    named = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    if not named:
        raise NoFormerRelease(f"no former release yet: after the first one, write its tag to {path}")
    [revision] = named
    return revision


def unpack_former(project: Path, folder: Path) -> str:
    """Write the former release's code to the folder; returns its revision.

    Raises:
        NoFormerRelease: none is named, or its commit is not in the history here, as in a shallow clone.
    """
    revision = named_release(project)
    command = ["git", "archive", "--format=tar", revision, "--", *FOLDERS]
    archived = subprocess.run(command, cwd=project, capture_output=True, check=False)
    if archived.returncode:
        reason = archived.stderr.decode(errors="replace").strip()
        raise NoFormerRelease(f"git has no {revision} here (a shallow clone? `git fetch --unshallow --tags`): {reason}")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return revision
