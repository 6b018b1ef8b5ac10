"""Secrets are rotated without a deploy: they are read seldom, and again as soon as they are refused."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

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

NO_VALUE = ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": "no"}}, "GetSecretValue")


class Manager:
    """Secrets Manager's one secret, a clock that the test sets, and how often the value was read."""

    def __init__(self) -> None:
        client: Any = self
        self.now, self.read, self.value, self.secret = 1e9, 0, "first", Secret(client, "arn")
        self.error: Exception | None = None
        self.hangs = False
        """Each read ends with a time-out, once `answers` is set."""
        self.asked, self.answers = Event(), Event()

    def get_secret_value(self, *, SecretId: str) -> dict[str, str]:
        assert SecretId == "arn"
        self.read += 1
        if self.hangs:
            self.asked.set()
            assert self.answers.wait(PATIENCE_SECONDS)
            raise ReadTimeoutError(endpoint_url="secretsmanager")
        if self.error:
            raise self.error
        return {"SecretString": self.value}


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    made = Manager()
    monkeypatch.setattr("onecharge.runtime.secrets.time", lambda: made.now)
    return made


def test_a_secret_is_read_once_in_five_minutes(manager: Manager) -> None:
    """However often it is used. Then a rotation is noticed."""
    assert {manager.secret.current() for _ in range(10)} == {"first"}
    manager.value = "second\n"
    manager.now += MAX_AGE_SECONDS - 1
    assert (manager.secret.current(), manager.read) == ("first", 1)
    manager.now += 1
    assert (manager.secret.current(), manager.read) == ("second", 2)


def test_a_refused_secret_is_read_again_once_in_half_a_minute(manager: Manager) -> None:
    """The result says whether it has another value now. Forged signatures do not cost a request each."""
    assert manager.secret.current() == "first"
    manager.value = "second"
    assert [manager.secret.read_again() for _ in range(1000)] == [True] + [False] * 999
    assert (manager.secret.current(), manager.read) == ("second", 2)
    manager.now += REREAD_SECONDS
    assert (manager.secret.read_again(), manager.read) == (False, 3)


def test_a_secret_without_a_value_is_an_outage(manager: Manager) -> None:
    """As the template makes it, until a value is stored. The log has AWS's code, not the secret's name or value; the
    failure is remembered for seconds."""
    manager.error = NO_VALUE
    for _ in range(3):
        with pytest.raises(SecretUnavailable) as unavailable:
            manager.secret.current()
    assert logged_as(unavailable.value) == "SecretUnavailable: ResourceNotFoundException"
    manager.error = None
    manager.now += RETRY_SECONDS
    assert (manager.secret.current(), manager.read) == ("first", 2)


@pytest.mark.parametrize("is_known", [False, True])
def test_while_a_read_hangs_a_known_secret_serves(manager: Manager, is_known: bool) -> None:
    """Nobody waits for the thread that reads, and that one has the known value, too. Without one ten records wait for
    one read: one after the other, they would hold up the batch ten times as long. A later read succeeds."""
    if is_known:
        manager.secret.current()
        manager.now += MAX_AGE_SECONDS
    manager.hangs = True

    def current() -> str:
        try:
            return manager.secret.current()
        except SecretUnavailable:
            return "unavailable"

    with ThreadPoolExecutor(10) as threads:
        reading = [threads.submit(current)]
        manager.asked.wait(PATIENCE_SECONDS)
        reading += [threads.submit(current) for _ in range(9)]
        if is_known:
            assert {each.result(PATIENCE_SECONDS) for each in reading[1:]} == {"first"}
        manager.answers.set()
        assert {each.result(PATIENCE_SECONDS) for each in reading} == {"first" if is_known else "unavailable"}
    assert manager.read == 1 + is_known
    manager.hangs = False
    manager.now += RETRY_SECONDS
    assert (manager.secret.current(), manager.read) == ("first", 2 + is_known)
