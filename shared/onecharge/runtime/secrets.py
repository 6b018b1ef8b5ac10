"""One secret of Secrets Manager, read with a bounded cache: it is rotated without a deploy.

current()        at most MAX_AGE_SECONDS old
with_previous()  for what others signed: the previous version is accepted for a day after a rotation
read_again()     immediately, when it is refused; at most once in REREAD_SECONDS, whatever strangers send
"""

from dataclasses import dataclass
from threading import Lock
from time import time
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

MAX_AGE_SECONDS = 300
"""How long a rotated secret is still used if nobody refuses it."""

REREAD_SECONDS = 30
"""The shortest time between two reads of a secret that is refused."""

PREVIOUS_SECONDS = 24 * 3600
"""How long the previous version is accepted. Secrets Manager keeps it until the next rotation, which may be years away:
a secret that was leaked, and therefore rotated, must not be good for so long. Stripe lets two signing secrets of an
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
    """One secret through boto3's client; used on several threads."""

    def __init__(self, client: "SecretsManagerClient", arn: str) -> None:
        self._client = client
        self._arn = arn
        self._lock = Lock()
        self._last: _Read | None = None
        self._reread_at = float("-inf")

    def current(self) -> str:
        """Its value, without the white space around it. Raises SecretUnavailable."""
        return self._read().current

    def with_previous(self) -> tuple[str, ...]:
        """Its value, and the previous one while that is accepted. Raises SecretUnavailable."""
        read = self._read()
        return (read.current,) if read.previous is None else (read.current, read.previous)

    def read_again(self) -> bool:
        """Whether reading it again has found other values; False if it was read again a short time ago.

        Raises SecretUnavailable.
        """
        with self._lock:
            now = time()
            if now - self._reread_at < REREAD_SECONDS:
                return False
            self._reread_at = now
            last, self._last = self._last, self._fetch(now)
            return last is None or (last.current, last.previous) != (self._last.current, self._last.previous)

    def _read(self) -> _Read:
        with self._lock:  # Ten records of a cold start read it once.
            now = time()
            if self._last is None or now - self._last.at >= MAX_AGE_SECONDS:
                self._last = self._fetch(now)
            return self._last

    def _fetch(self, now: float) -> _Read:
        try:
            version = self._client.get_secret_value(SecretId=self._arn)
            is_new = now - version["CreatedDate"].timestamp() < PREVIOUS_SECONDS
            return _Read(now, version["SecretString"].strip(), self._previous() if is_new else None)
        except (BotoCoreError, ClientError) as error:
            raise SecretUnavailable(type(error).__name__) from error

    def _previous(self) -> str | None:
        try:
            version = self._client.get_secret_value(SecretId=self._arn, VersionStage="AWSPREVIOUS")
        except self._client.exceptions.ResourceNotFoundException:
            return None  # It was never rotated.
        return version["SecretString"].strip()
