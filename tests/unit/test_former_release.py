"""The former release's code comes out of git's history, also in a clone that has no history."""

import subprocess
from pathlib import Path

import pytest

from testing.two_versions.former import NoFormerRelease, unpack_former


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.com"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of two commits, whose second one names the first as the former release."""
    project = tmp_path / "project"
    for folder in ("functions", "shared", "testing/two_versions", "local", "events"):
        (project / folder).mkdir(parents=True)
        (project / folder / "kept").write_text("of the former release")
    (project / "template.yaml").write_text("Resources: {}")
    git(project, "init", "--quiet")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "the former release")
    (project / "testing/two_versions/FORMER_RELEASE").write_text("# A comment.\n" + git(project, "rev-parse", "HEAD"))
    (project / "shared/kept").write_text("of this release")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "-m", "this release")
    return project


def clone_without_history(project: Path) -> Path:
    folder = project.parent / "clone"
    git(project.parent, "clone", "--quiet", "--depth", "1", project.as_uri(), str(folder))
    return folder


def test_a_clone_without_history_fetches_the_one_commit(project: Path, tmp_path: Path) -> None:
    """As CI services make their clones; its history stays short."""
    clone, unpacked = clone_without_history(project), tmp_path / "former"
    unpack_former(clone, unpacked)
    assert (unpacked / "shared/kept").read_text() == "of the former release"
    assert git(clone, "rev-parse", "--is-shallow-repository") == "true"


def test_a_commit_that_cannot_be_had_is_named_with_what_to_do(project: Path, tmp_path: Path) -> None:
    """The origin is gone, as without a network."""
    clone = clone_without_history(project)
    git(clone, "remote", "set-url", "origin", (tmp_path / "gone").as_uri())
    with pytest.raises(NoFormerRelease, match="git fetch --unshallow --tags"):
        unpack_former(clone, tmp_path / "former")
