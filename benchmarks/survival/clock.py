"""The virtual clock for Powertools, which asks Python's datetime for the time."""

import datetime
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

_IDEMPOTENCY = "aws_lambda_powertools.utilities.idempotency"


class VirtualClock:
    """Its `now` may be replaced at any time."""

    def __init__(self) -> None:
        self.now: Callable[[], int] = lambda: 0


class _DatetimeModule:
    """Python's datetime module, but for `datetime.now()`."""

    def __init__(self, clock: VirtualClock) -> None:
        class Datetime(datetime.datetime):
            @classmethod
            def now(cls, tz: datetime.tzinfo | None = None) -> "Datetime":
                return cls.fromtimestamp(clock.now(), tz)

        self.datetime = Datetime

    def __getattr__(self, name: str) -> Any:
        return getattr(datetime, name)


@contextmanager
def virtual_clock() -> Iterator[VirtualClock]:
    """Powertools' idempotency lives by this clock: nothing else of the library is touched."""
    clock = VirtualClock()
    theirs = _DatetimeModule(clock)
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith(_IDEMPOTENCY) and getattr(module, "dt", None) is datetime:
                stack.enter_context(patch.object(module, "dt", theirs))
        yield clock
