"""A shop on the deployed stack that a test runs on."""

from collections.abc import Iterator

import pytest

from local.stack import Stack
from tests.support.deployed_shop import DeployedShop


@pytest.fixture
def shop(stack: Stack) -> Iterator[DeployedShop]:
    shop = DeployedShop(stack)
    yield shop
    shop.stripe.clear_faults()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The permissions are compared last: by then the recording has what every other test made the functions request."""
    items.sort(key=lambda item: item.path.name == "test_permissions.py")
