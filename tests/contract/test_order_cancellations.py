"""The conditional writes of a cancellation, on every DynamoDB that we can run."""

from datetime import timedelta
from typing import Any

import pytest

from onecharge.contract.events import EventType
from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder
from onecharge.runtime.dynamodb import shard_of
from orders_api.cancel_order import request_cancellation
from orders_api.pay_again import NotDeclined
from republish.waiting import WaitingOrders
from testing.order_service import CUSTOMER, NOW, Shop


@pytest.fixture
def declined(order_dynamodb: Any) -> Shop:
    """A PAYMENT_DECLINED order."""
    shop = Shop.on(order_dynamodb)
    shop.payment(EventType.PAYMENT_DECLINED, decline_code="expired_card")
    return shop


def test_a_cancellation_is_never_undone(declined: Shop) -> None:
    """CANCELING, and a second request changes nothing; CANCELED; then neither another attempt nor CANCELING."""
    assert "expires_at" in declined.item
    for hours, is_new in ((1, True), (2, False)):
        canceling, stored = cancel(declined, hours=hours)
        assert (canceling.status, stored) == (OrderStatus.CANCELING, is_new)
    assert declined.item["cancel_requested_at"] == (NOW + timedelta(hours=1)).isoformat()
    assert "expires_at" not in declined.item
    with pytest.raises(NotDeclined):
        declined.pay_again("pm_a", "a")
    for _ in range(2):
        declined.payment(EventType.PAYMENT_CANCELED)
        assert declined.order.status is OrderStatus.CANCELED
    assert cancel(declined) == (declined.order, False)
    assert "expires_at" in declined.item


def test_a_cancellation_that_waits_is_found(declined: Shop) -> None:
    """Through the index; it waits since its request."""
    orders, shard = WaitingOrders(declined.client, declined.table), shard_of(declined.order_id)
    until = (NOW + timedelta(days=1)).timestamp()
    assert orders.page(shard, until=until, after=None, limit=1)[0] == []
    cancel(declined, hours=1)
    found, _ = orders.page(shard, until=until, after=None, limit=1)
    assert [entry.since for entry in found] == [NOW.timestamp() + 3600]
    [item] = orders.read(found)
    waiting = orders.waiting(item)
    assert waiting
    assert (waiting.event.type, waiting.since) == (EventType.CANCEL_REQUESTED, NOW.timestamp() + 3600)


def cancel(shop: Shop, *, hours: float = 0) -> tuple[StoredOrder, bool]:
    """The customer asks so much later."""
    return request_cancellation(shop.orders, CUSTOMER, shop.order_id, now=NOW + timedelta(hours=hours))
