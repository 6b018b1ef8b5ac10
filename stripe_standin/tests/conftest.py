"""A new stand-in for each test, with Stripe's client and the admin client."""

from collections.abc import Iterator

import pytest
import stripe

from stripe_standin.server import running_standin
from tests.support.standin_account import Account


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    monkeypatch.setattr(stripe, "enable_telemetry", False)
    with running_standin() as standin:
        yield Account(standin)
