"""A shop with the deployed payment service, over DynamoDB and Stripe in memory; the alarms that it raised."""

import pytest

from onecharge.runtime.metrics import Alarm
from tests.shop.shop import Shop


@pytest.fixture
def shop() -> Shop:
    return Shop()


def alarms(shop: Shop) -> list[str]:
    """The causes of the alarms since the last call."""
    causes = [each.cause for each in shop.counted if isinstance(each, Alarm)]
    shop.counted[:] = [each for each in shop.counted if not isinstance(each, Alarm)]
    return causes
