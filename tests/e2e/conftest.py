"""A shop on the deployed stack that a test runs on."""

from collections.abc import Iterator

import pytest

from local.stack import Stack
from testing.shop import Shop


@pytest.fixture
def shop(stack: Stack) -> Iterator[Shop]:
    shop = Shop(stack)
    yield shop
    shop.stripe.clear_faults()
