"""Runs a program in a terminal: signals stop it in order, and an error is one line that says what to do."""

import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

import requests
from botocore.exceptions import BotoCoreError
from rich.console import Console

from local.processes import StartupError
from stripe_standin.admin import AdminError

STOPPED, NOT_STARTED = 130, 2
"""Exit codes: somebody stopped it; it could not start, or could not go on."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """Somebody pressed Ctrl-C, sent SIGTERM, or closed the terminal.

    No Exception: botocore takes every one that is raised while it waits for a response as its own, and retries.
    """


def _stop(*_: object) -> None:
    # A second signal while tidying up would leave things behind.
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    with suppress(OSError):
        os.write(sys.stderr.fileno(), b"\nstopping ...\n")  # Immediately: print may be what was interrupted.
    raise Stopped


def run_in_terminal(program: Callable[[Console], int]) -> int:
    """Run a program until it ends, is stopped or cannot go on. From now on signals raise Stopped, so that everything
    that was started is ended in order; SIGHUP stays ignored where it is, since `nohup` means it.

    Returns:
        The exit code: the program's own, STOPPED or NOT_STARTED.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # A question mark for what the terminal's encoding lacks.
    console = Console()
    for each in _SIGNALS:
        if each is not signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, _stop)
    try:
        return program(console)
    except Stopped:
        # The terminal may be the thing that is gone.
        with suppress(OSError):
            console.print("stopped")
        return STOPPED
    except (StartupError, BotoCoreError, OSError) as reason:
        console.print(f"not started: {_explain(reason)}", style="red", markup=False, highlight=False, soft_wrap=True)
        return NOT_STARTED


def _explain(reason: Exception) -> str:
    """Why it did not start, and what to do."""
    match reason:
        case StartupError():
            return str(reason)
        case BotoCoreError() | requests.RequestException() | ConnectionError() | AdminError():
            return f"a part of the local stack does not answer ({reason}): aws.log in its work folder says why"
        case OSError(errno=errno.EADDRINUSE):
            return "another process took its port meanwhile: start it again"
        case OSError(strerror=text, filename=name):
            return f"{name or 'the work folder'}: {text}"
        case _:
            return repr(reason)
