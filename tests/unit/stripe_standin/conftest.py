"""One stand-in, with Stripe's own client and the stand-in's admin client on it."""

from collections.abc import Iterator

import pytest
import stripe

from local.stripe_standin.server import running_standin
from testing.standin_account import Account


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    monkeypatch.setattr(stripe, "enable_telemetry", False)
    with running_standin() as standin:
        yield Account(standin)
