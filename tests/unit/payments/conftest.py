"""A shop with the deployed payment service, over DynamoDB and Stripe in memory."""

import pytest

from tests.shop.shop import Shop


@pytest.fixture
def shop() -> Shop:
    return Shop()
