"""Until when orders may be placed again that both services have lost: `ops restore lookups` stores it in State."""

import time
from dataclasses import dataclass
from threading import Lock
from typing import ClassVar

from onecharge.runtime.checkpoints import Checkpoint, CheckpointStore

KEPT_SECONDS = 30
"""How long a worker keeps what it has read. A delivery that began just before takes as long again at most: after twice
this time every delivery knows."""


@dataclass(frozen=True, kw_only=True)
class PlacedAgain(Checkpoint):
    """Orders that were placed before `look_up_before` are looked up at any age: how old they are may be forgotten."""

    job: ClassVar[str] = "placed-again"

    look_up_before: int = 0
    """Epoch seconds; 0 if nothing was restored."""


class LookUpPlacedBefore:
    """The stored time, read consistently, and kept for KEPT_SECONDS: a delivery usually pays for no read."""

    def __init__(self, state: CheckpointStore[PlacedAgain]) -> None:
        self._state = state
        self._lock = Lock()
        self._known: int | None = None
        self._read_at = 0.0

    def __call__(self) -> int:
        """Epoch seconds. Raises botocore's errors: whether an order has to be looked up is unknown, and it waits."""
        with self._lock:
            # The monotonic clock may stand still while Lambda has frozen the environment.
            now = time.time()
            if self._known is None or not 0 <= now - self._read_at < KEPT_SECONDS:
                self._known = None
                self._known = (self._state.read() or PlacedAgain()).look_up_before
                self._read_at = now
            return self._known
