"""The long computations end quietly."""

import os
import signal
import subprocess
import sys
from functools import partial

from tests.support.harness import PROJECT


def test_ctrl_c_ends_all_processes_with_one_word() -> None:
    """As a terminal sends it: to the parent, and to those that compute for it."""
    started = subprocess.Popen(
        [sys.executable, "-u", "-m", "lab.specification"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell ignores it for what it runs in the background, and so for these tests, if they are run there.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    with started:
        assert started.stdout is not None
        started.stdout.readline()  # Its title. The first of its figures says that the processes compute.
        started.stdout.readline()
        os.killpg(started.pid, signal.SIGINT)
        try:
            _, errors = started.communicate(timeout=60)
        finally:
            started.kill()
    assert (started.returncode, errors) == (130, "stopped\n")
