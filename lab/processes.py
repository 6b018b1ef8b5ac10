"""Processes for long computations."""

import multiprocessing
import signal
from multiprocessing.pool import Pool


def pool(processes: int, method: str = "spawn") -> Pool:
    """Processes that leave Ctrl-C to their parent, whose `with` block ends them; `method` is multiprocessing's."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # What they inherit.
    try:
        return multiprocessing.get_context(method).Pool(processes)
    finally:
        signal.signal(signal.SIGINT, handler)
