"""The Makefile works in any folder: spaces, parentheses and letters beyond ASCII in its path are only text."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import PROJECT

HOSTILE_NAMES = ("my shop", "shop (copy)", "Bestellungen für Zoë", "it's $HOME; 100% & more #1")


@pytest.fixture(params=HOSTILE_NAMES)
def checkout(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The Makefile and what it reads, in a folder with a hostile name."""
    folder = tmp_path / "parent" / str(request.param)
    folder.mkdir(parents=True)
    shutil.copy(PROJECT / "Makefile", folder)
    shutil.copytree(PROJECT / "requirements", folder / "requirements")
    return folder


def make(checkout: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["make", *arguments], cwd=checkout, capture_output=True, text=True, check=False)


def test_clean_deletes_nothing_outside_the_checkout(checkout: Path) -> None:
    """Neither the neighbor whose name is the first word of ours, nor anything else beside it."""
    first_word = checkout.name.split()[0]
    neighbors = [checkout.parent / name for name in {first_word, *checkout.name.split(), "other"} - {checkout.name}]
    for neighbor in neighbors:
        (neighbor / "opt").mkdir(parents=True)
    for built in (".venv", ".local", ".aws-sam"):
        (checkout / built / "opt").mkdir(parents=True)
    done = make(checkout, "clean")
    assert done.returncode == 0, done.stderr
    assert all((neighbor / "opt").is_dir() for neighbor in neighbors)
    assert sorted(path.name for path in checkout.iterdir()) == ["Makefile", "requirements"]


@pytest.mark.parametrize("target", ["install", "test", "demo", "check", "requirements", "clean"])
def test_no_command_names_the_checkouts_path(checkout: Path, target: str) -> None:
    """What no command names, no shell can split: all paths in the recipes are relative."""
    done = make(checkout, "--dry-run", target)
    assert done.returncode == 0, done.stderr
    assert str(checkout.parent) not in done.stdout
