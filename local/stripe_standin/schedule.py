"""What happens by itself once its time has come: refunds that settle, requests that are executed late."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Schedule:
    """Actions with the time at which each is due; nothing runs unless `run` is called."""

    _waiting: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def add(self, due: float, action: Callable[[], object]) -> None:
        self._waiting.append((due, action))

    def run(self, now: float) -> int:
        """Run what is due, the earliest first; returns how much that was."""
        due = sorted((entry for entry in self._waiting if entry[0] <= now), key=lambda entry: entry[0])
        self._waiting = [entry for entry in self._waiting if entry not in due]
        for _, action in due:
            action()
        return len(due)
