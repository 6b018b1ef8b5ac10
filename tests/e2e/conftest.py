"""A shop on the deployed stack that a test runs on, and an operator."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.stack import Stack
from tests.support.deployed_shop import DeployedShop
from tests.support.ops_command import Operator


@pytest.fixture
def shop(stack: Stack) -> Iterator[DeployedShop]:
    shop = DeployedShop(stack)
    yield shop
    shop.stripe.clear_faults()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The permissions are compared last: by then the recording has what every other test made the functions request."""
    items.sort(key=lambda item: item.path.name == "test_permissions.py")


@pytest.fixture
def operator(stack: Stack, tmp_path: Path) -> Operator:
    return Operator(stack, tmp_path)
