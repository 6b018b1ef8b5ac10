"""On every DynamoDB that we can run: another customer's order is not there."""

from typing import Any

import pytest

from onecharge.contract.events import EventType
from onecharge.orders.store import NoSuchOrder
from orders_api.pay_again import make_attempt
from testing.order_service import CUSTOMER, NOW, Shop

UNKNOWN = "ord_" + "0" * 32


@pytest.fixture
def declined(order_dynamodb: Any) -> Shop:
    """A PAYMENT_DECLINED order."""
    shop = Shop.on(order_dynamodb)
    shop.payment(EventType.PAYMENT_DECLINED, decline_code="expired_card")
    return shop


def test_only_its_customer_finds_an_order(declined: Shop) -> None:
    """Another customer finds as much as there is of an order that was never placed."""
    assert declined.orders.find(declined.order_id, of=CUSTOMER) == declined.order
    assert declined.orders.find(declined.order_id, of="cus_2") is None
    assert declined.orders.find(UNKNOWN, of=CUSTOMER) is None


def test_only_its_customer_pays_an_order_again(declined: Shop) -> None:
    """Another customer's write is refused as one to an order that was never placed, and changes nothing."""
    before = declined.item
    for order_id in (declined.order_id, UNKNOWN):
        with pytest.raises(NoSuchOrder):
            make_attempt(declined.orders, "cus_2", order_id, "pm_card_visa", "k", now=NOW)
    assert declined.item == before
    _, is_new = make_attempt(declined.orders, CUSTOMER, declined.order_id, "pm_card_visa", "k", now=NOW)
    assert is_new
