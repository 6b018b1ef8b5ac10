"""The long computations end quietly."""

import os
import signal
import subprocess
import sys

from tests.support.harness import PROJECT


def test_ctrl_c_ends_all_processes_with_one_word() -> None:
    """As a terminal sends it: to the parent, and to those that compute for it."""
    command = [sys.executable, "-u", "-m", "lab.specification"]
    started = subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert started.stdout is not None
    started.stdout.readline()  # Its title. The first of its figures says that the processes compute.
    started.stdout.readline()
    os.killpg(started.pid, signal.SIGINT)
    _, errors = started.communicate(timeout=60)
    assert (started.returncode, errors) == (130, "stopped\n")
