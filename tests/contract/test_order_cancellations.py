"""The conditional writes of a cancellation, on every DynamoDB that we can run."""

from datetime import timedelta
from typing import Any

import pytest

from onecharge.contract.cancellations import CANCEL_REQUESTED
from onecharge.contract.events import EventType
from onecharge.contract.states import OrderStatus
from onecharge.orders.store import OrderStatusConflict
from onecharge.runtime.dynamodb import shard_of
from orders_api.cancel_order import store_cancellation
from orders_api.pay_again import NotDeclined
from republish.waiting import WaitingOrders
from testing.order_service import NOW, Shop


@pytest.fixture
def declined(order_dynamodb: Any) -> Shop:
    """A PAYMENT_DECLINED order."""
    shop = Shop.on(order_dynamodb)
    shop.payment(EventType.PAYMENT_DECLINED, decline_code="expired_card")
    return shop


def test_a_cancellation_is_never_undone(declined: Shop) -> None:
    """CANCELING, CANCELING again, CANCELED; then neither another attempt nor CANCELING."""
    orders, order = declined.orders, declined.order
    assert "expires_at" in declined.item
    for hours in (1, 2):
        canceling = store_cancellation(orders, order, OrderStatus.CANCELING, now=NOW + timedelta(hours=hours))
        assert canceling.status is OrderStatus.CANCELING
    assert declined.item["cancel_requested_at"] == (NOW + timedelta(hours=1)).isoformat()
    assert "expires_at" not in declined.item
    with pytest.raises(NotDeclined):
        declined.pay_again("pm_a", "a")
    for _ in range(2):
        assert store_cancellation(orders, order, OrderStatus.CANCELED, now=NOW).status is OrderStatus.CANCELED
    with pytest.raises(OrderStatusConflict):
        store_cancellation(orders, order, OrderStatus.CANCELING, now=NOW)
    assert "expires_at" in declined.item


def test_a_cancellation_that_waits_is_found(declined: Shop) -> None:
    """Through the index; it waits since its request."""
    orders, shard = WaitingOrders(declined.client, declined.table), shard_of(declined.order_id)
    until = (NOW + timedelta(days=1)).timestamp()
    assert orders.page(shard, until=until, after=None, limit=1)[0] == []
    store_cancellation(declined.orders, declined.order, OrderStatus.CANCELING, now=NOW + timedelta(hours=1))
    found, _ = orders.page(shard, until=until, after=None, limit=1)
    assert [entry.since for entry in found] == [NOW.timestamp() + 3600]
    [item] = orders.read(found)
    waiting = orders.waiting(item)
    assert waiting
    assert (waiting.event.type, waiting.since) == (CANCEL_REQUESTED, NOW.timestamp() + 3600)
