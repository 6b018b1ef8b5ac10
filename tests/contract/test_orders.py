"""The order service's conditional writes, on both DynamoDBs: attempts, cancellations, outcomes."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from onecharge.contract.events import ATTEMPTS_MAX, EventType
from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import NoSuchOrder
from onecharge.orders.transitions import CANCEL, OUTCOMES, PAY_AGAIN, RETRY, Transition, waits
from onecharge.orders.waiting import WaitingIndex
from onecharge.runtime.dynamodb import expression_values, shard_of
from onecharge.runtime.http_api import Problem
from orders_api.cancel_order import request_cancellation
from orders_api.list_orders import BY_CUSTOMER, OrdersQuery, read_page
from orders_api.pay_again import PaymentRequest, make_attempt
from republish.waiting import waiting_orders
from testing.order_service import CUSTOMER, NOW, Shop, refused
from tests.contract.conftest import Endpoint

MOVES: list[Transition] = [PAY_AGAIN, CANCEL, RETRY, *OUTCOMES.values()]
UNKNOWN = "ord_" + "0" * 32


@pytest.fixture
def declined(dynamodb: Any) -> Shop:
    """A PAYMENT_DECLINED order."""
    shop = Shop.on(dynamodb)
    shop.payment(EventType.PAYMENT_DECLINED, decline_code="expired_card")
    return shop


# ---------------------------------------------------------------- another attempt


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
        assert refused(lambda key=key: declined.pay_again("pm_b", key)) == "idempotency-key-reused"  # type: ignore[misc]
    assert declined.item == before


def test_attempts_are_limited(declined: Shop) -> None:
    """Attempt 100 is made; 101 is refused and stores nothing."""
    declined.set_status(OrderStatus.PAYMENT_DECLINED, attempt=ATTEMPTS_MAX - 1)
    assert declined.pay_again("pm_a", "K100")[0].attempt == ATTEMPTS_MAX
    declined.set_status(OrderStatus.PAYMENT_DECLINED)
    before = declined.item
    assert refused(lambda: declined.pay_again("pm_a", "K101")) == "attempts-exhausted"
    assert declined.item == before
    assert not declined.pay_again("pm_a", "K100")[1]


def test_do_not_try_again_refuses_the_payment_method(declined: Shop) -> None:
    """The write of the decline also adds the payment method to the refused ones."""
    declined.pay_again("pm_a", "a")
    for _ in range(2):
        declined.payment(EventType.PAYMENT_DECLINED, attempt=2, advice_code="do_not_try_again")
    assert declined.item["refused_payment_methods"] == ["pm_a"]
    assert refused(lambda: declined.pay_again("pm_a", "b")) == "payment-method-refused"
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
        except Problem as problem:
            return None if problem.kind == "not-declined" else -1

    with ThreadPoolExecutor(20) as threads:
        [made] = [number for number in threads.map(pay, range(20)) if number is not None]
        shop.set_status(OrderStatus.PAYMENT_DECLINED)
        again = list(threads.map(lambda _: shop.pay_again(f"pm_{made}", f"key-{made}")[1], range(20)))
    assert again == [False] * 20
    assert (shop.order.attempt, shop.order.payment_method) == (2, f"pm_{made}")


# ---------------------------------------------------------------- another customer


def test_only_its_customer_finds_an_order(declined: Shop) -> None:
    """Another customer finds as much as there is of an order that was never placed."""
    assert declined.orders.find(declined.order_id, of=CUSTOMER) == declined.order
    assert declined.orders.find(declined.order_id, of="cus_2") is None
    assert declined.orders.find(UNKNOWN, of=CUSTOMER) is None


def test_only_its_customer_writes_to_an_order(declined: Shop) -> None:
    """Another customer's write is refused as one to an order that was never placed, and changes nothing."""
    before = declined.item
    for order_id in (declined.order_id, UNKNOWN):
        with pytest.raises(NoSuchOrder):
            make_attempt(
                declined.orders, "cus_2", order_id, PaymentRequest(payment_method="pm_card_visa"), "k", now=NOW
            )
        with pytest.raises(NoSuchOrder):
            request_cancellation(declined.orders, "cus_2", order_id, now=NOW)
    assert declined.item == before
    assert declined.pay_again("pm_card_visa", "k")[1]


# ---------------------------------------------------------------- cancellations


def cancel(shop: Shop, *, hours: float = 0) -> tuple[StoredOrder, bool]:
    """The customer asks so much later."""
    return request_cancellation(shop.orders, CUSTOMER, shop.order_id, now=NOW + timedelta(hours=hours))


def test_a_cancellation_is_never_undone(declined: Shop) -> None:
    """CANCELING, and a second request changes nothing; CANCELED; then neither another attempt nor CANCELING."""
    assert "expires_at" in declined.item
    for hours, is_new in ((1, True), (2, False)):
        canceling, stored = cancel(declined, hours=hours)
        assert (canceling.status, stored) == (OrderStatus.CANCELING, is_new)
    assert declined.item["cancel_requested_at"] == (NOW + timedelta(hours=1)).isoformat()
    assert "expires_at" not in declined.item
    assert refused(lambda: declined.pay_again("pm_a", "a")) == "not-declined"
    for _ in range(2):
        declined.payment(EventType.PAYMENT_CANCELED)
        assert declined.order.status is OrderStatus.CANCELED
    assert cancel(declined) == (declined.order, False)
    assert "expires_at" in declined.item


# ---------------------------------------------------------------- what waits


@pytest.mark.parametrize(
    ("wait", "since_hours", "event_type"),
    [
        (lambda shop: shop.pay_again("pm_a", "KA"), 0, EventType.ORDER_PLACED),
        (lambda shop: cancel(shop, hours=1), 1, EventType.CANCEL_REQUESTED),
    ],
    ids=["an attempt", "a cancellation"],
)
def test_an_order_that_waits_is_found_in_its_shard(
    declined: Shop, wait: Callable[[Shop], object], since_hours: int, event_type: EventType
) -> None:
    """Through the index, by its age; and read as it is."""
    orders, shard = waiting_orders(declined.client, declined.table), shard_of(declined.order_id)
    since, until = (NOW + timedelta(hours=since_hours)).timestamp(), (NOW + timedelta(days=1)).timestamp()
    assert orders.page(shard, until=until, after=None, limit=1)[0] == []
    wait(declined)
    found, _ = orders.page(shard, until=until, after=None, limit=1)
    assert [entry.since for entry in found] == [since]
    assert orders.page(shard, until=(NOW - timedelta(days=1)).timestamp(), after=None, limit=1)[0] == []
    [item] = orders.read(found)
    waiting = orders.waiting(item)
    assert waiting
    assert (waiting.event.type, waiting.since) == (event_type, since)


def test_each_move_puts_an_order_into_the_index_or_takes_it_out(dynamodb: Any) -> None:
    """An order that waits is in the index and is kept, any other one is not and expires: whatever moves it from which
    status, and whichever of the two attributes it has."""
    shop = Shop.on(dynamodb)
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
    assert seen == {*OrderStatus}


def test_a_list_shows_an_order_as_it_is(declined: Shop) -> None:
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


# ---------------------------------------------------------------- outcomes


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
