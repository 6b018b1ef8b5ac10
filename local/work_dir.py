"""A run's folder, which one run uses at a time."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.processes import StartupError


@contextmanager
def sole_user_of(folder: Path, *, waits: bool = False) -> Iterator[None]:
    """Lock the folder for as long as the block lasts; with `waits`, wait until no other run has it.

    Raises:
        StartupError: another run has it.
        OSError: the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            raise StartupError(
                f"another run is using {folder}: stop it, or use `.venv/bin/python -m local --work-dir FOLDER`"
            ) from None
        yield
