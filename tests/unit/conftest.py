"""A stack in one process, for the commands of operators."""

from collections.abc import Iterator

import pytest

from stripe_standin.server import running_standin
from tests.support.operated_stack import OperatedStack


@pytest.fixture(scope="session")
def stripe_base() -> Iterator[str]:
    with running_standin() as standin:
        yield standin.base_url


@pytest.fixture
def operated(aws: None, stripe_base: str) -> OperatedStack:
    made = OperatedStack(stripe_base)
    made.standin.reset()
    return made
