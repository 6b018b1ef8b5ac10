"""A new stand-in for each test, with Stripe's client and the admin client."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import stripe

from stripe_standin.server import running_standin
from stripe_standin.tests.standin_account import Account
from stripe_standin.tests.typescript import TypeScript, require_node


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    monkeypatch.setattr(stripe, "enable_telemetry", False)
    with running_standin() as standin:
        yield Account(standin)


@pytest.fixture
def typescript(tmp_path: Path) -> TypeScript:
    require_node()
    return TypeScript(tmp_path)
