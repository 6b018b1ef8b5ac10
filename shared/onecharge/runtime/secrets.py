"""One secret of Secrets Manager, read with a bounded cache: it is rotated without a deploy.

current()        at most MAX_AGE_SECONDS old
read_anew()      at once, when it is refused; at most once in REREAD_SECONDS, whatever strangers send
with_previous()  for what others signed with the former version: it is accepted for a day after a rotation
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

MAX_AGE_SECONDS = 300
"""How long a rotated secret is still used if nobody refuses it."""

REREAD_SECONDS = 30
"""The shortest time between two reads of a secret that is refused."""

PREVIOUS_SECONDS = 24 * 3600
"""How long the former version is accepted. Secrets Manager keeps it until the next rotation, which may be years away: a
secret that was leaked, and therefore rotated, must not be good for so long. Stripe lets two signing secrets of an
endpoint overlap as long (Stripe documentation, "Roll endpoint signing secrets")."""


class SecretUnavailable(Exception):
    """The secret cannot be read: an outage, or a missing permission. Its value is in no message."""


@dataclass(frozen=True)
class _Read:
    """What a read of the secret has found."""

    at: float
    current: str
    previous: str | None


class Secret:
    """One secret through botocore's client; used on several threads.

    Args:
        clock: the time in epoch seconds.
        has_previous: whether the former version is read as well: one more request for each read within a day after a
            rotation.
    """

    def __init__(
        self,
        client: "SecretsManagerClient",
        arn: str,
        *,
        has_previous: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._arn = arn
        self._has_previous = has_previous
        self._clock = clock
        self._lock = Lock()
        self._last: _Read | None = None
        self._reread_at = float("-inf")

    def current(self) -> str:
        """Its value, without the white space around it. Raises SecretUnavailable."""
        return self._read().current

    def with_previous(self) -> tuple[str, ...]:
        """Its value, and the former one as long as it is accepted. Raises SecretUnavailable."""
        read = self._read()
        return (read.current,) if read.previous is None else (read.current, read.previous)

    def read_anew(self) -> bool:
        """Whether reading it once more has found other values; False if it was read anew a short time ago.

        Raises:
            SecretUnavailable: it cannot be read.
        """
        with self._lock:
            now = self._clock()
            if now - self._reread_at < REREAD_SECONDS:
                return False
            self._reread_at = now
            former, self._last = self._last, self._fetch(now)
            return former is None or (former.current, former.previous) != (self._last.current, self._last.previous)

    def _read(self) -> _Read:
        with self._lock:  # Ten records of a cold start read it once.
            now = self._clock()
            if self._last is None or now - self._last.at >= MAX_AGE_SECONDS:
                self._last = self._fetch(now)
            return self._last

    def _fetch(self, now: float) -> _Read:
        try:
            version: Any = self._client.get_secret_value(SecretId=self._arn)
            previous = self._previous() if self._has_previous and _is_new(version, now) else None
        except (BotoCoreError, ClientError) as error:
            raise SecretUnavailable(type(error).__name__) from error
        return _Read(now, str(version["SecretString"]).strip(), previous)

    def _previous(self) -> str | None:
        try:
            version = self._client.get_secret_value(SecretId=self._arn, VersionStage="AWSPREVIOUS")
        except self._client.exceptions.ResourceNotFoundException:
            return None  # It was never rotated.
        return version["SecretString"].strip()


def _is_new(version: Any, now: float) -> bool:
    created: datetime = version["CreatedDate"]
    return now - created.timestamp() < PREVIOUS_SECONDS
