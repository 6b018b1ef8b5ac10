"""The order service's conditional writes, on every DynamoDB that we can run: attempts and outcomes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from onecharge.contract.events import ATTEMPTS_MAX, EventType
from onecharge.contract.states import OrderStatus
from onecharge.orders.store import KeyReused
from onecharge.orders.transitions import CANCEL, OUTCOMES, PAY_AGAIN, RETRY, Transition, waits
from onecharge.orders.waiting import WaitingIndex
from onecharge.runtime.dynamodb import expression_values, shard_of
from orders_api.list_orders import BY_CUSTOMER, OrdersQuery, Page, read_page
from orders_api.pay_again import AttemptsExhausted, NotDeclined, PaymentMethodRefused
from republish.waiting import WaitingOrders
from testing.order_service import CUSTOMER, NOW, Shop
from tests.contract.conftest import Endpoint

MOVES: list[Transition] = [PAY_AGAIN, CANCEL, RETRY, *OUTCOMES.values()]


@pytest.fixture
def declined(order_dynamodb: Any) -> Shop:
    """A PAYMENT_DECLINED order."""
    shop = Shop.on(order_dynamodb)
    shop.payment(EventType.PAYMENT_DECLINED, decline_code="expired_card")
    return shop


def test_one_idempotency_key_makes_one_attempt(declined: Shop) -> None:
    """Also after later attempts and declines; with another card the key is refused."""
    order, is_new = declined.pay_again("pm_a", "KA")
    assert (is_new, order.attempt, order.payment_method) == (True, 2, "pm_a")
    declined.payment(EventType.PAYMENT_DECLINED, attempt=2)
    declined.pay_again("pm_b", "KB")
    declined.payment(EventType.PAYMENT_DECLINED, attempt=3)
    before = declined.item
    order, is_new = declined.pay_again("pm_a", "KA")
    assert (is_new, order.attempt) == (False, 3)
    for key in ("KA", "key"):
        with pytest.raises(KeyReused):
            declined.pay_again("pm_b", key)
    assert declined.item == before


def test_attempts_are_limited(declined: Shop) -> None:
    """Attempt 100 is made; 101 is refused and stores nothing."""
    declined.set_status(OrderStatus.PAYMENT_DECLINED, attempt=ATTEMPTS_MAX - 1)
    assert declined.pay_again("pm_a", "K100")[0].attempt == ATTEMPTS_MAX
    declined.set_status(OrderStatus.PAYMENT_DECLINED)
    before = declined.item
    with pytest.raises(AttemptsExhausted):
        declined.pay_again("pm_a", "K101")
    assert declined.item == before
    assert not declined.pay_again("pm_a", "K100")[1]


def test_do_not_try_again_refuses_the_payment_method(declined: Shop) -> None:
    """The write of the decline also adds the payment method to the refused ones."""
    declined.pay_again("pm_a", "a")
    declined.payment(EventType.PAYMENT_DECLINED, attempt=2, advice_code="do_not_try_again")
    declined.payment(EventType.PAYMENT_DECLINED, attempt=2, advice_code="do_not_try_again")
    assert declined.item["refused_payment_methods"] == ["pm_a"]
    with pytest.raises(PaymentMethodRefused):
        declined.pay_again("pm_a", "b")
    declined.pay_again("pm_b", "c")
    declined.payment(EventType.PAYMENT_DECLINED, attempt=3, advice_code="do_not_try_again")
    assert declined.item["refused_payment_methods"] == ["pm_a", "pm_b"]


def test_twenty_concurrent_requests_make_one_attempt(endpoint: Endpoint) -> None:
    """Each with its own key and card; twenty retries of the successful one are all replayed."""
    shop = Shop.on(endpoint.client())
    shop.payment(EventType.PAYMENT_DECLINED)
    barrier = threading.Barrier(20)

    def pay(number: int) -> int | None:
        barrier.wait()
        try:
            return number if shop.pay_again(f"pm_{number}", f"key-{number}")[1] else None
        except NotDeclined:
            return None

    with ThreadPoolExecutor(20) as threads:
        [made] = [number for number in threads.map(pay, range(20)) if number is not None]
        shop.set_status(OrderStatus.PAYMENT_DECLINED)
        again = list(threads.map(lambda _: shop.pay_again(f"pm_{made}", f"key-{made}")[1], range(20)))
    assert again == [False] * 20
    assert (shop.order.attempt, shop.order.payment_method) == (2, f"pm_{made}")


def test_an_order_that_waits_is_found_in_its_shard(declined: Shop) -> None:
    """Through the index, by its age; and read as it is."""
    orders, shard = WaitingOrders(declined.client, declined.table), shard_of(declined.order_id)
    until = (NOW + timedelta(days=1)).timestamp()
    assert orders.page(shard, until=until, after=None, limit=1)[0] == []
    declined.pay_again("pm_a", "KA")
    found, _ = orders.page(shard, until=until, after=None, limit=1)
    assert [entry.since for entry in found] == [NOW.timestamp()]
    assert orders.page(shard, until=(NOW - timedelta(days=1)).timestamp(), after=None, limit=1)[0] == []
    [item] = orders.read(found)
    waiting = orders.waiting(item)
    assert waiting
    assert (waiting.event.type, waiting.since) == (EventType.ORDER_PLACED, NOW.timestamp())


def test_each_move_puts_an_order_into_the_index_or_takes_it_out(order_dynamodb: Any) -> None:
    """An order that waits is in the index and is kept, any other one is not and expires: whatever moves it from which
    status, and whatever a former release has left on it."""
    shop = Shop.on(order_dynamodb)
    assert {"waiting_shard", "expires_at"} & shop.item.keys() == {"waiting_shard"}
    index, seen = WaitingIndex(shop.client, shop.table, "placed_at"), set()
    for transition in MOVES:
        for origin in transition.origins:
            left: dict[str, Any]
            for left in ({}, {"waiting_shard": "0"}, {"expires_at": 1}):
                shop.clear("waiting_shard", "expires_at")
                shop.set_status(origin, **left)
                shop.orders.move(shop.order_id, transition, at=NOW, changes={})
                kept = {"waiting_shard", "expires_at"} & shop.item.keys()
                assert kept == ({"waiting_shard"} if waits(transition.status) else {"expires_at"}), transition
                entries = [entry["status"] for entry in index.entries(until=NOW.timestamp())]
                assert entries == ([transition.status] if waits(transition.status) else [])
                seen.add(transition.status)
    without_a_move: list[OrderStatus] = [
        OrderStatus.CANCELING,
    ]
    assert seen >= {*OrderStatus}.difference(without_a_move)


def test_a_list_shows_an_order_as_it_is(declined: Shop) -> None:
    """Its index has keys only, whatever the order's status: each order is read from the table."""
    query = {"IndexName": BY_CUSTOMER, "KeyConditionExpression": "customer_id = :customer_id"}
    values = expression_values(customer_id=CUSTOMER)

    def page(customer_id: str) -> Page:
        return read_page(declined.orders, customer_id, OrdersQuery())

    for status in (OrderStatus.PENDING, OrderStatus.PAID):
        declined.set_status(status)
        [entry] = declined.client.query(TableName=declined.table, ExpressionAttributeValues=values, **query)["Items"]
        assert entry.keys() == {"order_id", "customer_id", "placed_at"}
        assert page(CUSTOMER) == Page([declined.order], [], None)
        assert declined.order.status is status
    assert page("cus_2") == Page([], [], None)


def test_a_late_success_wins_over_a_decline(declined: Shop) -> None:
    """Attempt 1 succeeds after attempt 2 was made: PAID by attempt 1; a decline of attempt 2 is ignored."""
    declined.pay_again("pm_a", "a")
    declined.payment(EventType.PAYMENT_DECLINED, attempt=1)
    assert declined.item["status"] == "PENDING"
    declined.payment(EventType.PAYMENT_SUCCEEDED, attempt=1)
    assert (declined.order.status, declined.order.paid_attempt) == (OrderStatus.PAID, 1)
    declined.payment(EventType.PAYMENT_DECLINED, attempt=2)
    assert declined.order.status is OrderStatus.PAID


def test_refunded_amount_and_dispute_follow_stripe(declined: Shop) -> None:
    """The amount of the newest revision and a closed dispute are kept, in any order of events."""
    for revision, amount, dispute in [(3, 500, "under_review"), (5, 200, "lost"), (4, 900, "needs_response")]:
        refunded: dict[str, Any] = {"amount_refunded_minor": amount, "dispute_status": dispute}
        declined.payment(EventType.PAYMENT_SUCCEEDED, revision=revision, **refunded)
    assert (declined.order.stripe_refunded_minor, declined.order.dispute_status) == (200, "lost")
    assert declined.order.refunded_minor == 200
