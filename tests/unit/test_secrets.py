"""Secrets are rotated without a deploy: they are read seldom, and again as soon as they are refused."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Event
from typing import Any
from unittest.mock import Mock

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from onecharge.runtime.secrets import (
    MAX_AGE_SECONDS,
    REREAD_SECONDS,
    RETRY_SECONDS,
    Secret,
    SecretUnavailable,
    logged_as,
)
from tests.support.harness import PATIENCE_SECONDS


class SecretsManager:
    """boto3's client of moto's Secrets Manager, a clock that the test sets, and how often the value was read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client = boto3.client("secretsmanager")
        self.arn = self.client.create_secret(Name="a-secret", SecretString="first")["ARN"]
        self.now = datetime.now(UTC).timestamp()
        self.read = 0
        self.hangs = False
        """Each read ends with a time-out, once `answers` is set."""
        self.asked, self.answers = Event(), Event()
        monkeypatch.setattr("onecharge.runtime.secrets.time", lambda: self.now)
        self.client.meta.events.register("before-call.secrets-manager.GetSecretValue", self._count)

    def _count(self, **_: Any) -> None:
        self.read += 1
        if self.hangs:
            self.asked.set()
            assert self.answers.wait(PATIENCE_SECONDS)
            raise ReadTimeoutError(endpoint_url="secretsmanager")

    def put(self, value: str) -> None:
        self.client.put_secret_value(SecretId=self.arn, SecretString=value)

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


def test_a_secret_without_a_value_is_an_outage(manager: SecretsManager) -> None:
    """As the template makes it, until a value is stored. The error names neither the secret nor its value."""
    empty = manager.client.create_secret(Name="without a value")["ARN"]
    secret = Secret(manager.client, empty)
    with pytest.raises(SecretUnavailable, match=r"^ResourceNotFoundException$"):
        secret.current()
    manager.client.put_secret_value(SecretId=empty, SecretString="first")
    manager.now += RETRY_SECONDS
    assert secret.current() == "first"


def test_a_read_that_aws_refuses_is_logged_with_its_code(manager: SecretsManager) -> None:
    """boto3 raises ClientError for most of them, which says nothing."""
    refusal = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetSecretValue")
    secret = Secret(Mock(**{"get_secret_value.side_effect": refusal}), manager.arn)
    with pytest.raises(SecretUnavailable) as unavailable:
        secret.current()
    assert logged_as(unavailable.value) == "SecretUnavailable: AccessDeniedException"


# ---------------------------------------------------------------- Secrets Manager hangs


def test_ten_records_wait_for_one_read_that_hangs(manager: SecretsManager) -> None:
    """One after the other, they would hold up the batch ten times as long. A later read succeeds."""
    secret, manager.hangs = manager.secret(), True

    def current() -> str:
        try:
            return secret.current()
        except SecretUnavailable:
            return "unavailable"

    with ThreadPoolExecutor(10) as threads:
        reading = [threads.submit(current) for _ in range(10)]
        manager.asked.wait(PATIENCE_SECONDS)
        manager.answers.set()
        assert [each.result(PATIENCE_SECONDS) for each in reading] == ["unavailable"] * 10
    assert manager.read == 1
    manager.hangs = False
    manager.now += RETRY_SECONDS
    assert secret.current() == "first"


def test_a_known_secret_serves_while_a_read_hangs_or_fails(manager: SecretsManager) -> None:
    """Nobody waits for the one that reads, and that one has the known value, too."""
    secret = manager.secret()
    assert secret.current() == "first"
    manager.hangs = True
    manager.now += MAX_AGE_SECONDS
    with ThreadPoolExecutor(2) as threads:
        reading = threads.submit(secret.current)
        manager.asked.wait(PATIENCE_SECONDS)
        assert threads.submit(secret.current).result(PATIENCE_SECONDS) == "first"
        manager.answers.set()
        assert reading.result(PATIENCE_SECONDS) == "first"
    assert {secret.current() for _ in range(10)} == {"first"}
    assert manager.read == 2
    manager.now += RETRY_SECONDS
    assert (secret.current(), manager.read) == ("first", 3)
