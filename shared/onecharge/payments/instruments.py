"""What every part of the payment service measures and reports with, passed on as one value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools import Logger

from onecharge.runtime.alarms import Cause
from onecharge.runtime.metrics import Alarm


@dataclass(frozen=True)
class Instruments:
    """A clock, a logger and a counter of metrics. Tests pass a clock that they set."""

    clock: Callable[[], float]
    """The time in epoch seconds."""
    logger: Logger
    count: Callable[[str], None]
    """Counts one occurrence of the metric of that name; called on several threads."""

    def now(self) -> int:
        """The time in whole epoch seconds, as it is stored."""
        return int(self.clock())

    def log(self, message: str, *, alarm: Cause | None = None, **details: Any) -> None:
        """Write one log line with these details, without those that are None; an alarm is an error that is counted."""
        if alarm:
            self.count(Alarm(alarm))
        write = self.logger.error if alarm else self.logger.info
        given = {"cause": alarm, **details}
        # The line's location is the caller, not this method.
        write(message, stacklevel=3, extra={name: value for name, value in given.items() if value is not None})
