"""AWS's clients as the functions make them."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from onecharge.runtime.parts import Parts


def test_threads_that_are_refused_at_the_same_time_share_one_exception(
    aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore would make it at the first refusal, without a lock: it exists before."""
    client = Parts({}).dynamodb
    made = "botocore.errorfactory.ClientExceptionsFactory.create_client_exceptions"
    monkeypatch.setattr(made, lambda *_: pytest.fail("made when it was asked for"))
    assert issubclass(client.exceptions.ConditionalCheckFailedException, ClientError)


def test_a_request_has_two_tries_of_three_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record takes a bounded time of its invocation, whatever AWS does."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    config: Any = Parts({}).client("sqs").meta.config
    assert config.connect_timeout + config.read_timeout == 3
    assert config.retries == {"mode": "standard", "total_max_attempts": 2}
