"""A stack in one process, for the commands that read tables, queues and Stripe."""

from collections.abc import Iterator

import pytest
import stripe
from moto import mock_aws

from local.stripe_standin.server import running_standin
from ops.dead_letters import queues
from testing.operated_stack import OperatedStack


@pytest.fixture
def operated(monkeypatch: pytest.MonkeyPatch) -> Iterator[OperatedStack]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(stripe, "enable_telemetry", False)
    monkeypatch.setattr(queues, "_WAIT_SECONDS", 0)
    # moto answers what goes to AWS, and nothing else: the stand-in is on this machine.
    with running_standin() as standin, mock_aws(config={"core": {"passthrough": {"urls": [standin.base_url + ".*"]}}}):
        yield OperatedStack(standin)
