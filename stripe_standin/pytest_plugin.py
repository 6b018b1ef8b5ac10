"""The pytest fixture `stripe_standin`. It is there once the distribution is installed."""

from collections.abc import Iterator

import pytest

from stripe_standin.admin import Ledger, StandInAdmin
from stripe_standin.server import running_standin


class RunningStandIn:
    """A stand-in at `base_url`; `admin` injects faults and moves the clock; `ledger` is what was really charged."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.admin = StandInAdmin(base_url)

    @property
    def ledger(self) -> Ledger:
        return self.admin.ledger()


@pytest.fixture
def stripe_standin() -> Iterator[RunningStandIn]:
    """A new stand-in for this test, on a free port."""
    with running_standin() as standin:
        yield RunningStandIn(standin.base_url)
