"""Actions at a later time: a refund that succeeds or fails, a request that is executed late."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Schedule:
    """Actions and their due times. Only `run` runs them."""

    _actions: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def add(self, due: float, action: Callable[[], object]) -> None:
        self._actions.append((due, action))

    def run(self, now: float) -> int:
        """Run the actions that are due, earliest first. Returns their number."""
        due = sorted((entry for entry in self._actions if entry[0] <= now), key=lambda entry: entry[0])
        self._actions = [entry for entry in self._actions if entry not in due]
        for _, action in due:
            action()
        return len(due)
