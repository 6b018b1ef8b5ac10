"""What goes wrong on machines of all kinds, each case as somebody would meet it.

A case returns what the person saw, and what is wrong with it beyond what every case has to keep: no traceback, few
lines, the last of which says what to do.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testing.anyones_machine.checkout import Checkout, Result

DEMO = ("demo", "ORDERS=10", "SEED=2")
_NOBODY_LISTENS = "http://127.0.0.1:9"
_OFFLINE = {
    "PIP_INDEX_URL": f"{_NOBODY_LISTENS}/simple",
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_FIND_LINKS": "",
    "PIP_NO_CACHE_DIR": "1",
    "npm_config_registry": _NOBODY_LISTENS,
}


class Skipped(Exception):
    """This machine cannot show the case; says why."""


@dataclass(frozen=True)
class Case:
    """One thing that goes wrong, and how it has to end."""

    name: str
    run: Callable[[Checkout], tuple[Result, str]]
    """Returns what was seen, and what is wrong with it beyond the rest of this; "" for nothing."""
    says: str
    """A regular expression that the last line matches."""
    exits: tuple[int, ...] = (2,)
    """Make's 2 is any failure of what it runs."""
    lines_max: int = 3
    is_bare: bool = False
    """Whether it needs no installation, and gets a clone of its own."""
    folder: str = ""
    """The name of that clone's folder, where it matters."""


def wrong_with(case: Case, result: Result, problem: str) -> str:
    """What is wrong with how a case ended; "" for nothing."""
    found = [
        problem,
        "traceback" if result.has_traceback else "",
        f"exit code {result.exit_code}" if result.exit_code not in case.exits else "",
        f"{len(result.lines)} lines" if len(result.lines) > case.lines_max else "",
        "" if re.search(case.says, result.last_line) else "says something else",
    ]
    return ", ".join(filter(None, found))


def just_make(*arguments: str, **env: str) -> Callable[[Checkout], tuple[Result, str]]:
    """Nothing but `make …`, in that environment."""
    return lambda checkout: (checkout.make(*arguments, env=env), "")


# ------------------------------------------------------------ the path


def clean_beside_a_neighbor(checkout: Checkout) -> tuple[Result, str]:
    neighbors = [checkout.folder.parent / word for word in checkout.folder.name.split()]
    for neighbor in neighbors:
        (neighbor / "work").mkdir(parents=True, exist_ok=True)
    result = checkout.make("clean")
    deleted = [neighbor.name for neighbor in neighbors if not (neighbor / "work").is_dir()]
    return result, f"deleted the neighbor {deleted}" if deleted else ""


def install_and_demo(checkout: Checkout) -> tuple[Result, str]:
    """The installation that all other cases share."""
    before = set(checkout.folder.parent.iterdir())
    result = checkout.make(*DEMO, seconds_max=1200)
    beside = {path.name for path in set(checkout.folder.parent.iterdir()) - before if path.suffix != ".txt"}
    return result, f"wrote beside the checkout: {beside}" if beside else ""


def moved_checkout(checkout: Checkout) -> tuple[Result, str]:
    elsewhere = Checkout(checkout.folder.with_name(f"{checkout.folder.name}-moved"))
    checkout.folder.rename(elsewhere.folder)
    try:
        return elsewhere.make("validate"), ""
    finally:
        elsewhere.folder.rename(checkout.folder)


# ------------------------------------------------------------ Python and Java


def another_python() -> str:
    """The path of a Python that is not 3.13."""
    roots = [*Path(os.environ.get("PYENV_ROOT", "/nonexistent"), "versions").glob("3.*/bin"), Path("/usr/bin")]
    for minor in (12, 11, 14, 10):
        for program in (root / f"python3.{minor}" for root in roots):
            if program.exists():
                return str(program)
    raise Skipped("no other Python is installed here")


def wrong_python(checkout: Checkout) -> tuple[Result, str]:
    result = checkout.make(f"PYTHON={another_python()}", "install")
    ours = checkout.folder / ".venv/bin/python"
    left = subprocess.run([str(ours), "--version"], capture_output=True, text=True).stdout if ours.exists() else ""
    return result, "" if "3.13" in left or not left else f"left an environment of {left.strip()}, which stays"


def foreign_python_path(checkout: Checkout) -> tuple[Result, str]:
    with folder_with(checkout, "boto3.py", "raise SystemExit('a foreign boto3 was imported')") as foreign:
        return checkout.make("test", "PYTEST_ARGS=tests/unit/test_money.py", env={"PYTHONPATH": str(foreign)}), ""


def old_java(checkout: Checkout) -> tuple[Result, str]:
    script = (
        '#!/bin/sh\ntest "$1" = -version && { echo \'openjdk version "11.0.2" 2019-01-15\' >&2; exit 0; }\n'
        "echo 'UnsupportedClassVersionError: class file version 61.0' >&2; exit 1\n"
    )
    with folder_with(checkout, "java", script) as foreign:
        path = f"{foreign}:{os.environ['PATH']}"
        return checkout.make(
            "test", "PYTEST_ARGS=tests/contract/test_store.py -k dynamodb_local", env={"PATH": path}
        ), ""


@contextmanager
def folder_with(checkout: Checkout, name: str, text: str) -> Iterator[Path]:
    """A folder beside the checkout, with one program or module in it."""
    folder = checkout.folder.parent / "foreign"
    folder.mkdir()
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


# ------------------------------------------------------------ npm and the package index


@contextmanager
def registry_that_never_answers() -> Iterator[str]:
    """It accepts connections, and that is all: what a firewall may do to npm."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"


def npm_unreachable(registry: str | None, ci: bool = False) -> Callable[[Checkout], tuple[Result, str]]:
    def run(checkout: Checkout) -> tuple[Result, str]:
        if not shutil.which("npm"):
            raise Skipped("npm is not installed here")
        with registry_that_never_answers() as silent:
            env = {"npm_config_registry": registry or silent, **({"CI": "true"} if ci else {})}
            with absent(checkout.folder / ".venv/opt/.dynamodb-local"):
                result = checkout.make(".venv/opt/.dynamodb-local", env=env, seconds_max=150)
        return result, f"takes {result.seconds:.0f} s" if result.seconds > 45 else ""

    return run


@contextmanager
def absent(path: Path) -> Iterator[None]:
    """For the time of the block the file has another name."""
    was_there = path.exists()
    if was_there:
        path.rename(path.with_suffix(".absent"))
    try:
        yield
    finally:
        if was_there:
            path.with_suffix(".absent").rename(path)


def install_offline(checkout: Checkout) -> tuple[Result, str]:
    return checkout.make("install", env=_OFFLINE), ""


def offline_after_a_first_run(checkout: Checkout) -> tuple[Result, str]:
    """A demo has run; now local, demo and a test of the stack, one after the other, without the package index."""
    result, _ = local_up_to(checkout, env=_OFFLINE)
    if "onecharge is running" not in result.output:
        return result, "local does not work"
    if (result := checkout.make(*DEMO, env=_OFFLINE)).exit_code:
        return result, "demo does not work"
    # Without the installation by make, which wants npm.
    result = checkout.run([".venv/bin/python", "-m", "pytest", "-q", "-x", "tests/e2e/test_webhooks.py"], _OFFLINE)
    return result, "the tests do not work" if result.exit_code else ""


def build_offline(checkout: Checkout) -> tuple[Result, str]:
    """Nothing was built before."""
    with absent(checkout.folder / ".local"), absent(checkout.folder / ".aws-sam"):
        result = checkout.make("local", env=_OFFLINE)
        shutil.rmtree(checkout.folder / ".local", ignore_errors=True)
        shutil.rmtree(checkout.folder / ".aws-sam", ignore_errors=True)
    return result, ""


# ------------------------------------------------------------ make local and make demo


def local_up_to(
    checkout: Checkout, env: Mapping[str, str] | None = None, *, then: Callable[[], str] = str
) -> tuple[Result, str]:
    """Start the stack, do something once it is there, and stop it by Ctrl-C."""
    with checkout.started(["make", "local"], env) as local:
        problem = then() if local.wait_for("Ctrl-C stops it") else "did not start"
        if local.process.poll() is None:
            local.signal(signal.SIGINT)
        return local.wait(60), problem


def hangup(checkout: Checkout) -> tuple[Result, str]:
    with checkout.started(["make", "local"]) as local:
        if not local.wait_for("Ctrl-C stops it"):
            return local.wait(1), "did not start"
        # Make would end before; a terminal that closes reaches the program itself.
        [program] = [pid for pid in pids_of(checkout, "-m local") if pid != local.process.pid][:1]
        os.kill(program, signal.SIGHUP)
        result = local.wait(60)
    return result, left_behind(checkout)


def kill_while_building(checkout: Checkout) -> tuple[Result, str]:
    with absent(checkout.folder / ".local"), absent(checkout.folder / ".aws-sam"):
        with checkout.started(["make", "local"]) as local:
            local.wait_for("sam build")
            time.sleep(3)
            for pid in pids_of(checkout, "-m local"):
                os.kill(pid, signal.SIGKILL)
            result = local.wait(60)
        time.sleep(8)
        problem = left_behind(checkout)
        time.sleep(60 if problem else 0)
        shutil.rmtree(checkout.folder / ".local", ignore_errors=True)
        shutil.rmtree(checkout.folder / ".aws-sam", ignore_errors=True)
    return result, problem


def pids_of(checkout: Checkout, words: str) -> list[int]:
    """The processes of `python … words` that were started in the checkout, and nobody else's."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if os.readlink(process / "cwd") == str(checkout.folder) and re.search(f"python.* {words}( |$)", command):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def left_behind(checkout: Checkout) -> str:
    """Processes and addresses of a run that is over."""
    processes = [" ".join(each.split()[:3])[-60:] for each in checkout.processes()]
    stack = ["stack.json"] if (checkout.folder / ".local/stack.json").exists() else []
    return f"leaves {', '.join(processes + stack)}" if processes or stack else ""


def interrupt_the_demo(checkout: Checkout) -> tuple[Result, str]:
    with checkout.started(["make", "demo"]) as demo:
        demo.wait_for("placing")
        time.sleep(4)
        demo.signal(signal.SIGINT)
        result = demo.wait(240)
    return result, left_behind(checkout)


def in_a_namespace(mount: str, *arguments: str) -> Callable[[Checkout], tuple[Result, str]]:
    """A case in which .local is a file system of its own, seen by this command only."""

    def run(checkout: Checkout) -> tuple[Result, str]:
        if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
            raise Skipped("this machine allows no mount namespaces")
        (checkout.folder / ".local").mkdir(exist_ok=True)
        script = f'mount -t tmpfs {mount} none .local && exec make "$@"'
        result = checkout.run(["unshare", "-rm", "bash", "-c", script, "-", *arguments])
        return result, left_behind(checkout)

    return run


# ------------------------------------------------------------ README.md


def readme_block(checkout: Checkout, *, containing: str) -> str:
    """The block of shell commands that holds the text."""
    blocks = re.findall(r"```sh\n(.*?)```", (checkout.folder / "README.md").read_text(), re.DOTALL)
    return next(str(block) for block in blocks if containing in block)


def readme_order(checkout: Checkout) -> tuple[Result, str]:
    """As in a second terminal beside `make local`: the order that the README places, answered as it shows."""
    answer: list[Result] = []

    def place() -> str:
        block = readme_block(checkout, containing="curl")
        answer.append(checkout.run(["bash", "-c", block], clean=True))
        promised = re.search(r"# Location: (\S+)", block)
        return "" if promised and promised[1] in answer[0].output else "another order id than the README shows"

    local, problem = local_up_to(checkout, then=place)
    return (answer[0] if answer else local), problem


def printed_order(checkout: Checkout) -> tuple[Result, str]:
    """The command that `make local` prints, pasted into a shell."""
    answer: list[Result] = []
    with checkout.started(["make", "local"]) as local:
        local.wait_for("Ctrl-C stops it")
        command = re.search(r"^curl .*?\}'$", local.output, re.DOTALL | re.MULTILINE)
        if command:
            answer.append(checkout.run(["bash", "-c", command[0]], clean=True))
        local.signal(signal.SIGINT)
        stopped = local.wait(60)
    return (answer[0] if answer else stopped), "" if answer else "prints no command"


def readme_deploy(checkout: Checkout) -> tuple[Result, str]:
    """In a fresh shell, with an `aws` that only answers, and up to the deployment itself."""
    block = readme_block(checkout, containing="sam deploy")
    stubs = "aws() { echo arn:aws:secretsmanager:region:account:secret:name; }; "
    stubs += 'sam() { type -P sam >/dev/null || command sam; test "$1" = build || echo "sam $1 would run"; }\n'
    return checkout.run(["bash", "-ec", stubs + block], {"STRIPE_SECRET_KEY": "sk_test_x"}, clean=True), ""
