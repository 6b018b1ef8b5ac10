"""The order service's conditional writes and its indexes, on both DynamoDBs."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from onecharge.contract.events import EventType
from onecharge.contract.states import OrderStatus
from onecharge.orders import transitions
from onecharge.orders.schema import StoredOrder
from onecharge.orders.transitions import OUTCOMES, WAITING, Transition
from onecharge.orders.waiting import WaitingIndex
from onecharge.runtime.dynamodb import expression_values, from_item, shard_of
from onecharge.runtime.http_api import Problem
from orders_api.cancel_order import request_cancellation
from orders_api.list_orders import BY_CUSTOMER, OrdersQuery, read_page
from republish.waiting import waiting_orders
from tests.contract.conftest import Endpoint
from tests.support.one_order import CUSTOMER, NOW, OneOrder

MOVES = [*(each for each in vars(transitions).values() if isinstance(each, Transition)), *OUTCOMES.values()]
"""Every one that the state machine has."""
UNKNOWN = "ord_" + "0" * 32


@pytest.fixture
def declined(dynamodb: Any) -> OneOrder:
    """A PAYMENT_DECLINED order."""
    shop = OneOrder.on(dynamodb)
    shop.payment(EventType.PAYMENT_DECLINED, reason="expired_card")
    return shop


# ---------------------------------------------------------------- another attempt


def test_twenty_concurrent_requests_make_one_attempt(endpoint: Endpoint) -> None:
    """Each with its own key and card; twenty retries of the successful one are all replayed."""
    shop = OneOrder.on(endpoint.client())
    shop.payment(EventType.PAYMENT_DECLINED)
    barrier = threading.Barrier(20)

    def pay(number: int) -> int | None:
        barrier.wait()
        try:
            return number if shop.pay_again(f"pm_{number}", f"key-{number}")[1] else None
        except Problem as problem:
            return None if problem.kind == "not-declined" else -1

    with ThreadPoolExecutor(20) as threads:
        [made] = [number for number in threads.map(pay, range(20)) if number is not None]
        shop.set_status(OrderStatus.PAYMENT_DECLINED)
        again = list(threads.map(lambda _: shop.pay_again(f"pm_{made}", f"key-{made}")[1], range(20)))
    assert again == [False] * 20
    assert (shop.order.attempt, shop.order.payment_method) == (2, f"pm_{made}")


# ---------------------------------------------------------------- another customer


def test_only_its_customer_finds_an_order(declined: OneOrder) -> None:
    """Another customer finds as much as there is of an order that was never placed."""
    assert declined.orders.find(declined.order_id, of=CUSTOMER) == declined.order
    assert declined.orders.find(declined.order_id, of="cus_2") is None
    assert declined.orders.find(UNKNOWN, of=CUSTOMER) is None


def cancel(shop: OneOrder, *, hours: float = 0) -> tuple[StoredOrder, bool]:
    """The customer asks so much later."""
    return request_cancellation(shop.orders, CUSTOMER, shop.order_id, now=NOW + timedelta(hours=hours))


# ---------------------------------------------------------------- what waits


@pytest.mark.parametrize(
    ("wait", "since_hours", "event_type"),
    [
        (lambda shop: shop.pay_again("pm_a", "KA", NOW + timedelta(hours=2)), 2, EventType.ORDER_PLACED),
        (lambda shop: cancel(shop, hours=1), 1, EventType.CANCEL_REQUESTED),
    ],
    ids=["an attempt", "a cancellation"],
)
def test_an_order_that_waits_is_found_in_its_shard(
    declined: OneOrder, wait: Callable[[OneOrder], object], since_hours: int, event_type: EventType
) -> None:
    """Through the index, by the time since which it waits; and read as it is."""
    orders, shard = waiting_orders(declined.client, declined.table), shard_of(declined.order_id)
    since, until = (NOW + timedelta(hours=since_hours)).timestamp(), (NOW + timedelta(days=1)).timestamp()
    index = orders.index
    assert index.page(shard, until=until, after=None, limit=1)[0] == []
    wait(declined)
    found, _ = index.page(shard, until=until, after=None, limit=1)
    assert [index.since_of(entry) for entry in found] == [since]
    assert index.page(shard, until=since - 1, after=None, limit=1)[0] == []
    [item] = orders.read(found)
    event = orders.event_of(item)
    assert event
    assert (event.type, index.since_of(from_item(item))) == (event_type, since)


def test_each_move_puts_an_order_into_the_index_or_takes_it_out(dynamodb: Any) -> None:
    """An order that waits is in the index and is kept, any other one is not and expires: whatever moves it from which
    status, and whichever of the two attributes it has. It has `waiting_since` in every status: the time of the move if
    it then waits, else that of the move before."""
    shop = OneOrder.on(dynamodb)
    assert {"waiting_shard", "expires_at"} & shop.item.keys() == {"waiting_shard"}
    index, seen = WaitingIndex(shop.client, shop.table, "waiting_since"), set()
    since, at = NOW, NOW
    assert shop.order.waiting_since == since
    for transition in MOVES:
        for origin in transition.origins:
            left: dict[str, Any]
            for left in ({}, {"waiting_shard": "0"}, {"expires_at": 1}):
                shop.clear("waiting_shard", "expires_at")
                shop.set_status(origin, **left)
                at += timedelta(minutes=1)
                shop.orders.move(shop.order_id, transition, at=at, changes={})
                since = at if transition.status in WAITING else since
                assert shop.order.waiting_since == since, transition
                kept = {"waiting_shard", "expires_at"} & shop.item.keys()
                is_waiting = transition.status in WAITING
                assert kept == ({"waiting_shard"} if is_waiting else {"expires_at"}), transition
                entries = [entry["status"] for entry in index.entries(until=since.timestamp())]
                assert entries == ([transition.status] if is_waiting else [])
                seen.add(transition.status)
    assert seen == {*OrderStatus}


def test_a_list_shows_an_order_as_it_is(declined: OneOrder) -> None:
    """Its index has keys only, whatever the order's status: each order is read from the table."""
    query = {"IndexName": BY_CUSTOMER, "KeyConditionExpression": "customer_id = :customer_id"}
    values = expression_values(customer_id=CUSTOMER)
    for status in (OrderStatus.PENDING, OrderStatus.PAID):
        declined.set_status(status)
        [entry] = declined.client.query(TableName=declined.table, ExpressionAttributeValues=values, **query)["Items"]
        assert entry.keys() == {"order_id", "customer_id", "placed_at"}
        [item], end = read_page(declined.orders, CUSTOMER, OrdersQuery())
        assert (StoredOrder.from_item(item), end) == (declined.order, None)
        assert declined.order.status is status
    assert read_page(declined.orders, "cus_2", OrdersQuery()) == ([], None)
