"""The folder of a run: one run at a time has it to itself."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.processes import StartupError


@contextmanager
def sole_user_of(work_dir: Path) -> Iterator[None]:
    """Nobody else runs a stack in this folder.

    Raises:
        StartupError: somebody does.
        OSError: the folder cannot be made or written.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    with (work_dir / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartupError(
                f"another run is using {work_dir}; stop it first, or use another folder with --work-dir"
            ) from None
        yield


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until nobody else is at work in the folder; then nobody else is, for as long as the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
