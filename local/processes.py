"""Child processes that never outlive the run: each in a session of its own, ended by its own process id."""

import errno
import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_STOP_SECONDS = 10

PORTS = range(15_000, 32_768)
"""Ports for our servers, below the range from which Linux takes ports for connections (ip(7), `ip_local_port_range`):
until a server listens, a connection could take its port."""

_END_SESSION_AFTER_US = "read -r _; kill -TERM -$0; sleep 3; kill -KILL -$0"
"""For `sh`: waits until we are gone, which closes its standard input; then ends the session whose leader is $0."""


class StartupError(Exception):
    """A part of the local stack did not come up; the last line of the message says why, and what to do."""


def free_port(host: str) -> int:
    """Any of PORTS that nobody listens on right now. Raises StartupError as free_ports."""
    return next(free_ports(host, random.SystemRandom().sample(PORTS, len(PORTS))))


def free_ports(host: str, ports: Sequence[int]) -> Iterator[int]:
    """Those of the ports that nobody listens on right now, in their order.

    Raises:
        StartupError: the host is no address of this machine, or no port is left.
    """
    for port in ports:
        try:
            with socket.socket() as probe:
                # As servers do: the connections of one that has ended are no reason.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        except OSError as reason:
            if reason.errno != errno.EADDRINUSE:
                raise StartupError(f"{host} is no address of this machine ({reason.strerror})") from None
        else:
            yield port
    raise StartupError(f"no port of {host} is free: tried {min(ports)} to {max(ports)}")


def tail(log: Path, lines: int = 25) -> str:
    """The last lines of a log, to say why something failed."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no log)"


@contextmanager
def running(
    command: Sequence[str], *, env: Mapping[str, str], log: Path | None, cwd: Path
) -> Iterator["subprocess.Popen[str]"]:
    """Run a program for as long as the block lasts, then end it and its children, even if we are killed.

    It has a session of its own, so that Ctrl-C in the terminal reaches only us, who then end it in order.

    Raises:
        StartupError: the program is missing, or was installed in another folder.
    """
    with ExitStack() as parts:
        output = parts.enter_context(log.open("w")) if log else None
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
            )
        except (FileNotFoundError, PermissionError):
            raise StartupError(f"{command[0]} does not run here: run `make install`") from None
        parts.callback(_end, process)
        # The kernel closes our end of the watcher's pipe, however we die. PR_SET_PDEATHSIG would reach only the leader:
        # pip would outlive the `sam build` that started it.
        watch = ["sh", "-c", _END_SESSION_AFTER_US, str(process.pid)]
        nowhere = subprocess.DEVNULL
        watcher = subprocess.Popen(watch, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True)
        parts.callback(watcher.communicate)
        parts.callback(watcher.kill)
        yield process


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
