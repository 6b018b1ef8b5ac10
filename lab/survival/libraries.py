"""What libraries meet in the simulator: Powertools the virtual clock, boto3 lost responses."""

import datetime
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from botocore.exceptions import ReadTimeoutError

from tests.shop.dynamodb import MemoryDynamoDB

_IDEMPOTENCY = "aws_lambda_powertools.utilities.idempotency"


class VirtualClock:
    """For Powertools' idempotency, which calls `datetime.now()`. Each schedule replaces `now`, in epoch seconds."""

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


class RetryingClient:
    """boto3 retries a request whose response was lost, so a conditional write can fail because of itself.

    A transaction cannot: boto3 sends both requests with the same ClientRequestToken.
    """

    def __init__(self, client: MemoryDynamoDB, writes: Callable[[], int], retries_left: Callable[[], bool]) -> None:
        """`writes` counts the caller's writes so far; `retries_left` decides whether boto3 retries once more."""
        self._client, self._writes, self._retries_left = client, writes, retries_left

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._client, name)
        if name == "exceptions":
            return operation

        def send(**parameters: Any) -> Any:
            writes_before = self._writes()
            try:
                return operation(**parameters)
            except ReadTimeoutError:
                if not self._retries_left():
                    raise
                if name == "transact_write_items" and self._writes() > writes_before:
                    return {}
                return operation(**parameters)

        return send
