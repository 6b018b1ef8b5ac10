"""Secrets are rotated without a deploy: they are read seldom, and again as soon as they are refused."""

from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from onecharge.runtime.secrets import (
    MAX_AGE_SECONDS,
    PREVIOUS_SECONDS,
    REREAD_SECONDS,
    Secret,
    SecretUnavailable,
)


class SecretsManager:
    """boto3's client of moto's Secrets Manager, a clock that the test sets, and how often the value was read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = boto3.client("secretsmanager")
        self.arn = self.client.create_secret(Name="a-secret", SecretString="first")["ARN"]
        self.now = datetime.now(UTC).timestamp()
        self.read = 0
        monkeypatch.setattr("onecharge.runtime.secrets.time", lambda: self.now)
        self.client.meta.events.register("before-call.secrets-manager.GetSecretValue", self._count)

    def _count(self, params: Any, **_: Any) -> None:
        self.read += b"AWSPREVIOUS" not in params["body"]

    def put(self, value: str) -> None:
        self.client.put_secret_value(SecretId=self.arn, SecretString=value)

    def current_created_at(self) -> float:
        return self.client.get_secret_value(SecretId=self.arn)["CreatedDate"].timestamp()

    def secret(self) -> Secret:
        return Secret(self.client, self.arn)


@pytest.fixture
def manager(aws: None, monkeypatch: pytest.MonkeyPatch) -> SecretsManager:
    return SecretsManager(monkeypatch)


def test_a_secret_is_read_once_in_five_minutes(manager: SecretsManager) -> None:
    """However often it is used. Then a rotation is noticed."""
    secret = manager.secret()
    assert {secret.current() for _ in range(10)} == {"first"}
    manager.put("second\n")
    manager.now += MAX_AGE_SECONDS - 1
    assert (secret.current(), manager.read) == ("first", 1)
    manager.now += 1
    assert (secret.current(), manager.read) == ("second", 2)


def test_a_refused_secret_is_read_again(manager: SecretsManager) -> None:
    """The result says whether it has another value now."""
    secret = manager.secret()
    assert secret.current() == "first"
    manager.put("second")
    assert (secret.read_again(), secret.current()) == (True, "second")
    manager.now += REREAD_SECONDS
    assert (secret.read_again(), secret.current()) == (False, "second")


def test_a_thousand_refusals_read_a_secret_once(manager: SecretsManager) -> None:
    """In half a minute: forged signatures do not cost a request each."""
    secret = manager.secret()
    secret.current()
    assert not any(secret.read_again() for _ in range(1000))
    assert manager.read == 2
    manager.now += REREAD_SECONDS
    secret.read_again()
    assert manager.read == 3


def test_the_previous_version_is_accepted_for_a_day(manager: SecretsManager) -> None:
    """Secrets Manager keeps it longer, but it may have been leaked."""
    secret = manager.secret()
    assert secret.with_previous() == ("first",)
    manager.put("second")
    assert secret.read_again()
    assert secret.with_previous() == ("second", "first")
    a_day_after = manager.current_created_at() + PREVIOUS_SECONDS
    manager.now = a_day_after - MAX_AGE_SECONDS
    assert secret.with_previous() == ("second", "first")
    manager.now = a_day_after
    assert secret.with_previous() == ("second",)


def test_a_leaked_secret_is_refused_if_the_new_one_is_stored_twice(manager: SecretsManager) -> None:
    """Then the previous version is the new value, too."""
    secret = manager.secret()
    manager.put("second")
    manager.put("second")
    assert set(secret.with_previous()) == {"second"}


def test_a_secret_that_cannot_be_read_is_an_outage(manager: SecretsManager) -> None:
    """Its error names neither the secret nor its value."""
    secret = Secret(manager.client, "arn:aws:secretsmanager:us-east-1:123456789012:secret:none-abcdef")
    with pytest.raises(SecretUnavailable, match=r"^ResourceNotFoundException$"):
        secret.current()
