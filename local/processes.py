"""Child processes that never outlive the run: each in a session of its own, ended by its own process id."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_STOP_SECONDS = 10
_PR_SET_PDEATHSIG = 1


class DidNotStart(Exception):
    """A part of the local stack did not come up; the message says why, for the person who started it."""


def free_port(host: str) -> int:
    """A port of the host that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def tail(log: Path, lines: int = 25) -> str:
    """The last lines of a log, to say why something failed."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no log)"


@contextmanager
def running(
    command: Sequence[str], *, env: Mapping[str, str], log: Path | None, cwd: Path
) -> Iterator["subprocess.Popen[str]"]:
    """Run a program for as long as the block lasts, and end it and its children with it.

    It has a session of its own, so that Ctrl-C in the terminal reaches only us, who then end it in order.
    """
    output = log.open("w") if log else None
    try:
        process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output or subprocess.PIPE,
            stderr=subprocess.STDOUT if output else subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # No threads yet.
        )
        try:
            yield process
        finally:
            _end(process)
    finally:
        if output:
            output.close()


def _die_with_parent() -> None:
    # Should we be killed without a chance to tidy up, the kernel ends the child.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(process: "subprocess.Popen[str]") -> None:
    """Ask the program to stop, then make it and whatever is left of its session stop."""
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout:
        process.stdout.close()
