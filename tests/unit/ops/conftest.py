"""A stack in one process, for the commands that read tables, queues and Stripe."""

from collections.abc import Iterator

import pytest
import stripe

from local.stripe_standin.server import running_standin
from ops.dead_letters import queues
from testing.operated_stack import OperatedStack


@pytest.fixture
def operated(aws: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[OperatedStack]:
    monkeypatch.setattr(stripe, "enable_telemetry", False)
    monkeypatch.setattr(queues, "_WAIT_SECONDS", 0)
    with running_standin() as standin:
        yield OperatedStack(standin)
