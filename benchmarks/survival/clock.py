"""The virtual clock for Powertools, whose idempotency module calls `datetime.now()`."""

import datetime
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

_IDEMPOTENCY = "aws_lambda_powertools.utilities.idempotency"


class VirtualClock:
    """`now` returns epoch seconds; each schedule replaces it."""

    def __init__(self) -> None:
        self.now: Callable[[], int] = lambda: 0


class _DatetimeModule:
    """Python's datetime module, except for `datetime.now()`."""

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
    """Replace the datetime module in Powertools' idempotency, and nothing else of the library."""
    clock = VirtualClock()
    replacement = _DatetimeModule(clock)
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith(_IDEMPOTENCY) and getattr(module, "dt", None) is datetime:
                stack.enter_context(patch.object(module, "dt", replacement))
        yield clock
