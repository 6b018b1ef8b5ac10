"""The order service's conditional writes and its indexes. test_replay.py sends the same requests to moto's DynamoDB."""

from datetime import timedelta
from typing import Any

from onecharge.contract.states import OrderStatus
from onecharge.orders import transitions
from onecharge.orders.schema import StoredOrder
from onecharge.orders.transitions import MOVES, WAITING, Transition
from onecharge.orders.waiting import WaitingIndex
from onecharge.runtime.dynamodb import expression_values, shard_of
from orders_api.list_orders import BY_CUSTOMER, OrdersQuery, read_page
from tests.support.one_order import CUSTOMER, NOW, OneOrder

TRANSITIONS = [*(each for each in vars(transitions).values() if isinstance(each, Transition)), *MOVES.values()]
"""Every one that the state machine has."""


def test_only_its_customer_finds_an_order() -> None:
    """Another customer finds as much as there is of an order that was never placed, alone and in a list, whose index
    has keys only: each order is read from the table."""
    shop = OneOrder.placed()
    assert shop.orders.find(shop.order_id, of=CUSTOMER) == shop.order
    assert shop.orders.find(shop.order_id, of="cus_2") is None
    assert shop.orders.find("ord_" + "0" * 32, of=CUSTOMER) is None
    query = {"IndexName": BY_CUSTOMER, "KeyConditionExpression": "customer_id = :customer_id"}
    values = expression_values(customer_id=CUSTOMER)
    [entry] = shop.client.query(TableName=shop.table, ExpressionAttributeValues=values, **query)["Items"]
    assert entry.keys() == {"order_id", "customer_id", "placed_at"}
    [item], end = read_page(shop.orders, CUSTOMER, OrdersQuery())
    assert (StoredOrder.from_item(item), end) == (shop.order, None)
    assert read_page(shop.orders, "cus_2", OrdersQuery()) == ([], None)


def test_each_move_puts_an_order_into_the_index_or_takes_it_out() -> None:
    """An order that waits is in the index and is kept, any other one is not and expires: whatever moves it from which
    status, and whichever of the two attributes it has. It has `waiting_since` in every status: the time of the move if
    it then waits, else that of the move before."""
    shop = OneOrder.placed()
    assert {"waiting_shard", "expires_at"} & shop.item.keys() == {"waiting_shard"}
    index, shard, seen = WaitingIndex(shop.client, shop.table, "waiting_since"), shard_of(shop.order_id), set()
    since, at = NOW, NOW
    assert shop.order.waiting_since == since
    for transition in TRANSITIONS:
        is_waiting = transition.status in WAITING
        for origin in transition.origins:
            left: dict[str, Any]
            for left in ({}, {"waiting_shard": "0"}, {"expires_at": 1}):
                shop.clear("waiting_shard", "expires_at")
                shop.set_status(origin, **left)
                at += timedelta(minutes=1)
                shop.orders.move(shop.order_id, transition, at=at, changes={})
                since = at if is_waiting else since
                assert shop.order.waiting_since == since, transition
                kept = {"waiting_shard", "expires_at"} & shop.item.keys()
                assert kept == ({"waiting_shard"} if is_waiting else {"expires_at"}), transition
                entries, _ = index.page(shard, until=since.timestamp(), after=None, limit=1)
                assert [each["status"] for each in entries] == ([transition.status] if is_waiting else [])
                assert [index.since_of(each) for each in entries] == ([at.timestamp()] if is_waiting else [])
                assert index.page(shard, until=since.timestamp() - 1, after=None, limit=1)[0] == []
                seen.add(transition.status)
    assert seen == {*OrderStatus}
