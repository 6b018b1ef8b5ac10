"""Whatever stops a program of local/ ends in one line that says what to do; nothing that it started outlives it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from local.processes import StartupError, free_port, running
from local.terminal import explain
from testing.harness import PROJECT

_PATIENCE_SECONDS = 120
"""A bound for what ends in a second, on a machine that is busy."""

_WAITS = """
import signal
import socket
from contextlib import contextmanager
from local.terminal import run_in_terminal
@contextmanager
def stack():
    try:
        yield
    finally:
        print("tidied up", flush=True)
def program(console):
    with stack():
        print("up", flush=True)
        signal.pause()
raise SystemExit(run_in_terminal(program))
"""
_FAILS = """
from local.terminal import run_in_terminal
def program(console):
    {0}
raise SystemExit(run_in_terminal(program))
"""


def in_a_process(source: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PYTHONPATH": str(PROJECT), **environment}
    return subprocess.run([sys.executable, "-c", source], env=env, capture_output=True, text=True, check=False)


@contextmanager
def waiting(*before: str) -> Iterator["subprocess.Popen[str]"]:
    """A program of ours that is up, and waits."""
    env = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [*before, sys.executable, "-c", _WAITS]
    with subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Also where the tests run under `nohup`.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    ) as program:
        try:
            assert program.stdout
            assert program.stdout.readline() == "up\n"
            yield program
        finally:
            program.kill()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_it_in_order(end: signal.Signals) -> None:
    """Ctrl-C, SIGTERM, and a terminal that is closed: first everything is tidied up."""
    with waiting() as program:
        program.send_signal(end)
        output, _ = program.communicate(timeout=_PATIENCE_SECONDS)
    assert (program.returncode, output) == (130, "tidied up\nstopped\n")


def test_nohup_survives_the_terminal() -> None:
    """SIGHUP stays ignored where it is."""
    with waiting("sh", "-c", 'trap "" HUP; exec "$@"', "-") as program:
        program.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(0.5)
        program.terminate()
        assert program.communicate(timeout=_PATIENCE_SECONDS)[0] == "tidied up\nstopped\n"


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("open('/dev/full', 'w').write('x' * 100_000)", "No space left on device; free some space"),
        ("raise OSError(30, 'Read-only file system', '.local')", ".local: Read-only file system; make it writable"),
        ("open('/nonexistent/x')", "/nonexistent/x: No such file or directory"),
        ("raise __import__('requests').ConnectionError('refused')", "does not answer (refused): aws.log"),
        ("raise __import__('botocore.exceptions').exceptions.NoRegionError", "a part of the local stack"),
        ("raise __import__('local.processes').processes.StartupError('HOST [x]')", "not started: HOST [x]"),
    ],
)
def test_what_stops_it_is_one_line(statement: str, line: str) -> None:
    """No traceback: what it was, and what to do."""
    done = in_a_process(_FAILS.format(statement))
    assert done.returncode == 2
    assert line in done.stdout
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_mistake_of_ours_keeps_its_traceback() -> None:
    """Only what the machine does is explained away."""
    assert "ZeroDivisionError" in in_a_process(_FAILS.format("1 / 0")).stderr


@pytest.mark.parametrize("environment", [{"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"}])
def test_a_terminal_without_unicode_shows_question_marks(environment: dict[str, str]) -> None:
    done = in_a_process(_FAILS.format("console.print('\\u2022 Zo\\xeb \\u2713')"), **environment)
    assert done.stdout == "? Zo? ?\n"
    assert "Traceback" not in done.stderr


def test_an_unknown_error_of_the_network_names_the_log() -> None:
    """requests' errors are OSErrors without a number."""
    assert "aws.log" in explain(requests.Timeout("read"))


@pytest.mark.parametrize("host", ["192.0.2.1", "nonsense.invalid"])
def test_a_host_of_another_machine_is_refused(host: str) -> None:
    """192.0.2.1 is nobody's; the other name resolves nowhere."""
    with pytest.raises(StartupError, match=f"HOST={host} is no address of this machine"):
        free_port(host)


def test_a_port_in_use_is_not_given() -> None:
    """If there is no other, the error says so."""
    with socket.socket() as server:
        taken = free_port("127.0.0.1")
        server.bind(("127.0.0.1", taken))
        with pytest.raises(StartupError, match=f"no port of 127.0.0.1 is free: tried {taken} to {taken}"):
            free_port("127.0.0.1", range(taken, taken + 1))


def test_a_missing_program_says_how_to_install_it(tmp_path: Path) -> None:
    """So does one whose environment was moved: its first line names a Python that is not there."""
    script = tmp_path / "sam"
    script.write_text("#!/nonexistent/python\n")
    script.chmod(0o755)
    for program in (script, tmp_path / "absent"):
        with pytest.raises(StartupError, match="make install"), running([str(program)], env={}, log=None, cwd=tmp_path):
            pass


def test_nothing_outlives_a_kill(tmp_path: Path) -> None:
    """Neither a program that we run nor its child, when we get no chance to end them."""
    source = (
        "import pathlib, time\n"
        "from local.processes import running\n"
        "command = ['sh', '-c', 'sleep 300 & echo $! >child; echo $$ >leader; wait']\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "with running(command, env={}, log=None, cwd=folder):\n"
        "    (folder / 'watched').write_text('1\\n')\n"
        "    time.sleep(300)\n"
    )
    with subprocess.Popen([sys.executable, "-c", source], env={**os.environ, "PYTHONPATH": str(PROJECT)}) as killed:
        # Between its start and its watcher's, a program is nobody's: the watcher has to be there.
        await_number(tmp_path / "watched")
        pids = [await_number(tmp_path / name) for name in ("child", "leader")]
        killed.kill()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def await_number(path: Path) -> int:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int(path.read_text())


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and that nobody has asked about does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


_ASKS_AWS = """
import signal
import socket
import boto3
from botocore.config import Config
from local.terminal import run_in_terminal
from local.emulator import CREDENTIALS
import os
os.environ.update(CREDENTIALS)
def program(console):
    # A retry would be refused at once, and end in another way.
    sqs = boto3.client("sqs", endpoint_url=os.environ["SLOW_AWS"], config=Config(retries={"total_max_attempts": 2}))
    print("up", flush=True)
    sqs.list_queues()
    return 0
raise SystemExit(run_in_terminal(program))
"""


def test_what_waits_for_aws_is_stopped_too() -> None:
    """botocore takes an Exception that is raised in the midst of a request as the request's failure, and retries it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = {**os.environ, "PYTHONPATH": str(PROJECT), "SLOW_AWS": address}
        command = [sys.executable, "-c", _ASKS_AWS]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
            silent.settimeout(_PATIENCE_SECONDS)
            connection, _ = silent.accept()
            process.send_signal(signal.SIGTERM)
            silent.close()
            try:
                output, _ = process.communicate(timeout=_PATIENCE_SECONDS)
            finally:
                process.kill()
                connection.close()
    assert (process.returncode, output) == (130, "up\nstopped\n")
