"""One secret of Secrets Manager, read with a bounded cache: it is rotated without a deploy.

current()     at most MAX_AGE_SECONDS old, if it can be read
read_again()  immediately, when it is refused; at most once in REREAD_SECONDS, whatever strangers send

While Secrets Manager does not answer, a known value keeps serving.
"""

from contextlib import suppress
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


class Secret:
    """One secret through boto3's client; used on several threads."""

    def __init__(self, client: "SecretsManagerClient", arn: str) -> None:
        self._client = client
        self._arn = arn
        self._lock = Lock()
        self._value: str | None = None
        self._failure = ""
        self._due_at = self._reread_at = float("-inf")

    def current(self) -> str:
        """Its value, without the white space around it. Raises SecretUnavailable.

        One thread reads it when it is due; the others wait only if no value is known.
        """
        if time() >= self._due_at and self._lock.acquire(blocking=self._value is None):
            try:
                if time() >= self._due_at:
                    with suppress(SecretUnavailable):
                        self._read()
            finally:
                self._lock.release()
        if self._value is None:
            raise SecretUnavailable(self._failure)
        return self._value

    def read_again(self) -> bool:
        """Whether reading it again has found another value; False if it was read again a short time ago.

        Raises SecretUnavailable.
        """
        with self._lock:
            if time() < self._reread_at:
                return False
            self._reread_at = time() + REREAD_SECONDS
            known = self._value
            self._read()
            return self._value != known

    def _read(self) -> None:
        try:
            found = self._client.get_secret_value(SecretId=self._arn)["SecretString"].strip()
        except (BotoCoreError, ClientError) as error:
            # For a secret without a value, as after a first deployment, it is ResourceNotFoundException.
            self._failure, self._due_at = error_code(error), time() + RETRY_SECONDS
            raise SecretUnavailable(self._failure) from error
        self._value, self._due_at = found, time() + MAX_AGE_SECONDS
