"""boto3's retries after a lost response."""

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ReadTimeoutError

from testing.simulation.dynamodb import MemoryDynamoDB


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
