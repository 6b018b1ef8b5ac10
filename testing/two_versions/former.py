"""The former release's code, out of git's history."""

import io
import subprocess
import tarfile
from pathlib import Path

FOLDERS = ("functions", "shared", "testing", "local", "events", "template.yaml")
"""What a release needs to run in its own folder; see release.py."""

_FILE = "testing/two_versions/FORMER_RELEASE"
_GIT_SECONDS = 120


class NoFormerRelease(Exception):
    """There is none here; the text says why, and what to do."""


def named_release(project: Path, file: str = _FILE) -> str:
    """The git revision of the former release, as the file names it: FORMER_RELEASE beside this module, or another.

    Raises:
        NoFormerRelease: no release is named yet.
    """
    path = project / file
    named = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    if not named:
        raise NoFormerRelease(f"no former release yet: after the first one, write its tag to {path}")
    [revision] = named
    return revision


def unpack_former(project: Path, folder: Path, file: str = _FILE) -> str:
    """Write the former release's code to the folder; returns its revision. The file names the release.

    Raises:
        NoFormerRelease: none is named, or its commit is not in the history here, as in a shallow clone that
            cannot fetch it.
    """
    revision = named_release(project, file)
    archived = _git(project, "archive", "--format=tar", revision, "--", *FOLDERS)
    if archived.returncode and _git(project, "rev-parse", "--is-shallow-repository").stdout.strip() == b"true":
        # A shallow clone fetches this one commit; its history stays as short as it is.
        _git(project, "fetch", "--depth=1", "origin", revision)
        archived = _git(project, "archive", "--format=tar", revision, "--", *FOLDERS)
    if archived.returncode:
        reason = archived.stderr.decode(errors="replace").strip()
        raise NoFormerRelease(f"git has no {revision} here (a shallow clone? `git fetch --unshallow --tags`): {reason}")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return revision


def _git(project: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *words], cwd=project, capture_output=True, check=False, timeout=_GIT_SECONDS)
