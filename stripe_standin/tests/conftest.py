"""A new Stripe for each test, in process or over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import stripe as sdk

from stripe_standin.server import StandIn, running_standin
from stripe_standin.tests.support import Stripe
from stripe_standin.tests.typescript import TypeScript, require_node


@pytest.fixture
def stripe() -> Stripe:
    return Stripe()


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setattr(sdk, "enable_telemetry", False)
    with running_standin() as standin:
        yield standin


@pytest.fixture
def typescript(tmp_path: Path) -> TypeScript:
    require_node()
    return TypeScript(tmp_path)
