"""One secret of Secrets Manager, read with a bounded cache: it is rotated without a deploy.

current()     at most MAX_AGE_SECONDS old, if it can be read
read_again()  immediately, when it is refused; at most once in REREAD_SECONDS, whatever strangers send

While Secrets Manager does not answer, a value that is known keeps serving, and a failure is remembered for seconds.
"""

from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from time import time
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from onecharge.runtime.aws import error_code

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

MAX_AGE_SECONDS = 300
"""How long a rotated secret is still used if nobody refuses it."""

RETRY_SECONDS = 5
"""How long a failed read is remembered: ten records of a batch, or ten requests, do not wait for it one by one."""

REREAD_SECONDS = 30
"""The shortest time between two reads of a secret that is refused."""


class SecretUnavailable(Exception):
    """The secret cannot be read: an outage, a missing permission, or no value yet. Its value is in no message."""


def logged_as(error: Exception) -> str:
    """The error in a log: its type, or AWS's code for it; never its text, but why a secret is unavailable."""
    return f"SecretUnavailable: {error}" if isinstance(error, SecretUnavailable) else error_code(error)


@dataclass(frozen=True)
class _Read:
    """What a read of the secret has found."""

    at: float
    current: str


class Secret:
    """One secret through boto3's client; used on several threads."""

    def __init__(self, client: "SecretsManagerClient", arn: str) -> None:
        self._client = client
        self._arn = arn
        self._lock = Lock()
        self._last: _Read | None = None
        self._failure = ""
        self._retry_at = float("-inf")
        self._reread_at = float("-inf")

    def current(self) -> str:
        """Its value, without the white space around it. Raises SecretUnavailable."""
        return self._read().current

    def read_again(self) -> bool:
        """Whether reading it again has found another value; False if it was read again a short time ago.

        Raises SecretUnavailable.
        """
        with self._lock:
            now = time()
            if now - self._reread_at < REREAD_SECONDS:
                return False
            self._reread_at = now
            last, self._last = self._last, self._fetch(now)
            return last is None or last.current != self._last.current

    def _read(self) -> _Read:
        """What was read last, if that is new, cannot be renewed now, or is just being renewed by another thread."""
        known = self._last
        if known is None:
            self._lock.acquire()  # Ten records of a cold start wait for one read.
        elif not self._lock.acquire(blocking=False):
            return known
        try:
            now = time()
            is_due = self._last is None or now - self._last.at >= MAX_AGE_SECONDS
            if is_due and now >= self._retry_at:
                with suppress(SecretUnavailable):
                    self._last = self._fetch(now)
            if self._last is None:
                raise SecretUnavailable(self._failure)
            return self._last
        finally:
            self._lock.release()

    def _fetch(self, now: float) -> _Read:
        try:
            version = self._client.get_secret_value(SecretId=self._arn)
            return _Read(now, version["SecretString"].strip())
        except (BotoCoreError, ClientError) as error:
            # Of a secret without a value, as after a first deployment, it is ResourceNotFoundException.
            self._failure, self._retry_at = error_code(error), time() + RETRY_SECONDS
            raise SecretUnavailable(self._failure) from error
