"""Secrets: rotated without a deploy, read seldom, and read again immediately when they are refused."""

from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
import stripe

from local.stripe_standin.admin import StandInAdmin
from local.stripe_standin.server import running_standin
from onecharge.payments.stripe_client import StripeAccount
from onecharge.payments.stripe_responses import ResponseKind, classify
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.aws import client_config
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
    """However often it is used; then a rotation is noticed."""
    secret = manager.secret()
    assert {secret.current() for _ in range(10)} == {"first"}
    manager.put("second\n")
    manager.now += MAX_AGE_SECONDS - 1
    assert (secret.current(), manager.read) == ("first", 1)
    manager.now += 1
    assert (secret.current(), manager.read) == ("second", 2)


def test_a_secret_that_is_refused_is_read_anew_at_once(manager: SecretsManager) -> None:
    """And says whether there is another value now."""
    secret = manager.secret()
    assert secret.current() == "first"
    manager.put("second")
    assert (secret.read_anew(), secret.current()) == (True, "second")
    manager.now += REREAD_SECONDS
    assert (secret.read_anew(), secret.current()) == (False, "second")


def test_a_thousand_refusals_read_a_secret_once(manager: SecretsManager) -> None:
    """In half a minute: whoever sends forged signatures costs no request each."""
    secret = manager.secret()
    secret.current()
    assert not any(secret.read_anew() for _ in range(1000))
    assert manager.read == 2
    manager.now += REREAD_SECONDS
    secret.read_anew()
    assert manager.read == 3


def test_the_former_version_is_good_for_a_day(manager: SecretsManager) -> None:
    """And no longer, though Secrets Manager keeps it: it may have been leaked."""
    secret = manager.secret()
    assert secret.with_previous() == ("first",)
    manager.put("second")
    assert secret.read_anew()
    assert secret.with_previous() == ("second", "first")
    a_day_after = manager.current_created_at() + PREVIOUS_SECONDS
    manager.now = a_day_after - MAX_AGE_SECONDS
    assert secret.with_previous() == ("second", "first")
    manager.now = a_day_after
    assert secret.with_previous() == ("second",)


def test_a_leaked_secret_is_refused_at_once_if_the_new_one_is_stored_twice(manager: SecretsManager) -> None:
    """Then the former version is the new value, too."""
    secret = manager.secret()
    manager.put("second")
    manager.put("second")
    assert set(secret.with_previous()) == {"second"}


def test_a_secret_that_cannot_be_read_is_an_outage(manager: SecretsManager) -> None:
    """Its error names neither the secret nor its value."""
    secret = Secret(manager.client, "arn:aws:secretsmanager:us-east-1:123456789012:secret:none-abcdef")
    with pytest.raises(SecretUnavailable, match=r"^ResourceNotFoundException$"):
        secret.current()


# ---------------------------------------------------------------- Stripe's API key


@pytest.fixture
def key(manager: SecretsManager) -> SecretsManager:
    manager.put("sk_test_first")
    manager.read = 0
    return manager


def refusals_of(client: stripe.StripeClient, times: int = 1) -> list[ResponseKind]:
    kinds = []
    for _ in range(times):
        with pytest.raises(stripe.StripeError) as refused:
            client.v1.payment_intents.retrieve("pi_none")
        kinds.append(classify(refused.value).kind)
    return kinds


@pytest.mark.parametrize(
    "value",
    ["sk_test_first\nsk_test_second", "sk_test first", "sk_test_first\r\n\tx", "{'key': 'sk_test_x'}", "", "sk_é"],
)
def test_what_is_no_api_key_is_refused_before_it_is_sent(key: SecretsManager, value: str) -> None:
    """As a key that cannot be read, with an error that shows nothing of it: a header's error would show all of it."""
    account = StripeAccount(
        {"STRIPE_SECRET_ARN": key.arn, "STRIPE_API_BASE": "http://127.0.0.1:1"},
        config=client_config(),
        bounds=TimeBounds.of(30),
    )
    key.put(value or " ")
    for ask in (account.client, account.is_live):
        with pytest.raises(SecretUnavailable, match=r"^not an API key$") as raised:
            ask()
        assert raised.value.__cause__ is None


def test_white_space_around_an_api_key_is_taken_off(key: SecretsManager) -> None:
    """Such as the line break with which a shell has stored it."""
    key.put(" sk_live_first\n")
    environment = {"STRIPE_SECRET_ARN": key.arn, "STRIPE_API_BASE": "http://127.0.0.1:1"}
    assert StripeAccount(environment, config=client_config(), bounds=TimeBounds.of(30)).is_live()


def test_a_rolled_api_key_is_noticed_with_its_first_refusal(key: SecretsManager) -> None:
    """That is no fault of anybody: no alarm, and the next delivery uses the new key."""
    with running_standin() as standin:
        environment = {"STRIPE_SECRET_ARN": key.arn, "STRIPE_API_BASE": standin.base_url}
        account = StripeAccount(environment, config=client_config(), bounds=TimeBounds.of(30))
        rolled = account.client()
        assert refusals_of(rolled) == [ResponseKind.NOT_FOUND]
        StandInAdmin(standin.base_url).assign_api_key("sk_test_first", None)
        key.put("sk_test_second")
        # Ten records of a batch have the old client; the last of them is refused when the secret was read anew.
        assert set(refusals_of(rolled, 10)) == {ResponseKind.API_KEY_REPLACED}
        assert refusals_of(account.client()) == [ResponseKind.NOT_FOUND]


def test_a_key_that_is_wrong_is_an_alarm(key: SecretsManager) -> None:
    """The secret is read anew, and holds the same key: a person has to see it."""
    with running_standin() as standin:
        environment = {"STRIPE_SECRET_ARN": key.arn, "STRIPE_API_BASE": standin.base_url}
        account = StripeAccount(environment, config=client_config(), bounds=TimeBounds.of(30))
        StandInAdmin(standin.base_url).assign_api_key("sk_test_first", None)
        assert set(refusals_of(account.client(), 20)) == {ResponseKind.ACCOUNT}


@pytest.mark.parametrize(("api_key", "is_live"), [("sk_live_x", True), ("rk_live_x", True), ("rk_test_x", False)])
def test_a_key_names_its_mode(key: SecretsManager, api_key: str, *, is_live: bool) -> None:
    """Secret and restricted keys alike (Stripe documentation, "API keys")."""
    key.put(api_key)
    environment = {"STRIPE_SECRET_ARN": key.arn, "STRIPE_API_BASE": "http://127.0.0.1:9"}
    assert StripeAccount(environment, config=client_config(), bounds=TimeBounds.of(30)).is_live() is is_live
