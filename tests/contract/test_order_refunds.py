"""The transactions of refunds, on every DynamoDB that we can run: request, reservation, outcome."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Self
from uuid import uuid4

import pytest

from onecharge.contract.events import EventType
from onecharge.contract.refunds import (
    RefundEventType,
    RefundOutcome,
    RefundOutcomeEvent,
    RefundOutcomeType,
    RefundStatus,
)
from onecharge.contract.states import OrderStatus
from onecharge.orders.refunds import StoredRefund
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import KeyReused
from onecharge.runtime.consumer import Done
from onecharge.runtime.dynamodb import shard_of, to_item
from orders_api.refund_store import ExceedsRefundable, NotPaid, OrderChanged, OrderRefundStore
from republish.waiting_refunds import WaitingRefunds
from testing.harness import Log, create_table
from testing.order_service import NOW, Shop
from tests.contract.conftest import Endpoint
from update_order.refunds import NoSuchRefund, RefundConflict, UpdateRefund


@dataclass(frozen=True)
class RefundShop(Shop):
    """One order and its refunds."""

    refunds_table: str = ""

    @classmethod
    def on(cls, client: Any) -> Self:
        """The order is paid."""
        refunds_table = create_table(client, f"order-refunds-{uuid4()}", "OrderRefundsTable")
        shop = replace(super().on(client), refunds_table=refunds_table)
        shop.set_status(OrderStatus.PAID)
        return shop

    @property
    def refunds(self) -> OrderRefundStore:
        return OrderRefundStore(self.client, self.refunds_table, self.table)

    def refund(self, amount: int | None, key: str, *, order: StoredOrder | None = None) -> tuple[StoredRefund, bool]:
        return self.refunds.request(order or self.order, amount, key, correlation_id="c", now=NOW)

    def outcome(self, refund: StoredRefund, event_type: RefundOutcomeType) -> bool:
        """Handle a refund's outcome; returns whether it changed the refund."""
        self.counted.clear()
        data = RefundOutcome(
            order_id=refund.order_id,
            refund_id=refund.refund_id,
            attempt=1,
            amount_minor=refund.amount_minor,
            currency="EUR",
            failure_code="charge_disputed" if event_type is RefundEventType.FAILED else None,
            occurred_at=NOW,
        )
        update = UpdateRefund(
            self.orders,
            self.refunds_table,
            Log().logger,
            self.counted.append,
        )
        assert update(RefundOutcomeEvent.of(event_type, data, revision=1, correlation_id="c")) == Done()
        return self.counted != ["RefundUpdateIgnored"]


@pytest.fixture
def shop(order_dynamodb: Any) -> RefundShop:
    """A PAID order."""
    return RefundShop.on(order_dynamodb)


def test_a_refund_and_its_reservation_are_stored_together(shop: RefundShop) -> None:
    """Once for each idempotency key; a retry returns the stored refund."""
    refund, is_new = shop.refund(1000, "a")
    assert (is_new, refund.status, shop.order.reserved_minor) == (True, RefundStatus.PENDING, 1000)
    assert shop.refund(1000, "a") == (refund, False)
    with pytest.raises(KeyReused):
        shop.refund(999, "a")
    assert shop.order.reserved_minor == 1000
    assert shop.refunds.of_order(shop.order_id) == [refund]


def test_reservations_never_exceed_the_amount_paid(shop: RefundShop) -> None:
    """Refused before the write, or by the write's condition."""
    as_it_was = shop.order
    shop.refund(2000, "a")
    with pytest.raises(ExceedsRefundable):
        shop.refund(501, "b")
    with pytest.raises(OrderChanged):
        shop.refund(501, "b", order=as_it_was)
    assert shop.order.reserved_minor == 2000
    assert shop.refund(None, "b")[0].amount_minor == 500
    assert len(shop.refunds.of_order(shop.order_id)) == 2


def test_refunds_in_the_dashboard_reduce_what_is_refundable(shop: RefundShop) -> None:
    """Refused before the write, or by the write's condition."""
    as_it_was = shop.order
    shop.payment(EventType.PAYMENT_SUCCEEDED, amount_refunded_minor=2000)
    with pytest.raises(ExceedsRefundable):
        shop.refund(501, "a")
    with pytest.raises(OrderChanged):
        shop.refund(501, "a", order=as_it_was)
    assert shop.refund(None, "b")[0].amount_minor == 500


def test_only_a_paid_order_is_refunded(shop: RefundShop) -> None:
    """Refused before the write, or by the write's condition."""
    paid = shop.order
    shop.set_status(OrderStatus.NEEDS_REVIEW)
    with pytest.raises(NotPaid):
        shop.refund(1, "a")
    with pytest.raises(OrderChanged):
        shop.refund(1, "a", order=paid)
    assert shop.refunds.of_order(shop.order_id) == []


def test_a_concurrent_retry_returns_the_same_refund(shop: RefundShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither finds a refund; the retry's write meets the stored one and returns it."""
    before = shop.order
    refund, _ = shop.refund(2500, "a")
    monkeypatch.setattr(OrderRefundStore, "find", lambda *_: None)
    assert shop.refund(2500, "a", order=before) == (refund, False)


def test_a_failed_refund_releases_its_amount_once(shop: RefundShop) -> None:
    """However often the event is delivered, and whatever arrives later."""
    refund, _ = shop.refund(2500, "a")
    assert [shop.outcome(refund, RefundEventType.FAILED) for _ in range(3)] == [True, False, False]
    assert not shop.outcome(refund, RefundEventType.SUCCEEDED)
    assert shop.order.refunded_minor == 0
    [shown] = shop.refunds.of_order(shop.order_id)
    assert shown.status is RefundStatus.FAILED
    assert shop.refund(2500, "b")[1]


def test_a_refund_that_fails_after_success_releases_its_amount_once(shop: RefundShop) -> None:
    """FAILED with an alarm; refundable again when Stripe's refunded amount has decreased."""
    refund, _ = shop.refund(2500, "a")
    assert shop.outcome(refund, RefundEventType.SUCCEEDED)
    shop.payment(EventType.PAYMENT_SUCCEEDED, amount_refunded_minor=2500, revision=3)
    assert shop.outcome(refund, RefundEventType.FAILED)
    assert sorted(shop.counted) == ["Alarm", "RefundReturned", "RefundStatus.FAILED"]
    assert [shop.outcome(refund, RefundEventType.FAILED) for _ in range(3)] == [False] * 3
    assert not shop.outcome(refund, RefundEventType.SUCCEEDED)
    assert shop.order.refunded_minor == 2500
    shop.payment(EventType.PAYMENT_SUCCEEDED, amount_refunded_minor=0, revision=4)
    shop.payment(EventType.PAYMENT_SUCCEEDED, amount_refunded_minor=2500, revision=3)
    [shown] = shop.refunds.of_order(shop.order_id)
    assert (shown.status, shop.order.refunded_minor) == (RefundStatus.FAILED, 0)
    assert shop.refund(None, "b")[0].amount_minor == 2500
    assert shop.order.refunded_minor == 2500


@pytest.mark.parametrize(
    ("event_type", "status", "left"),
    [
        (RefundEventType.SUCCEEDED, RefundStatus.SUCCEEDED, 0),
        (RefundEventType.FAILED, RefundStatus.FAILED, 2500),
    ],
)
def test_a_refund_in_review_succeeds_or_fails(
    shop: RefundShop, event_type: RefundOutcomeType, status: RefundStatus, left: int
) -> None:
    """It keeps its reservation until it fails; a failure after review raises no alarm."""
    refund, _ = shop.refund(2500, "a")
    assert shop.outcome(refund, RefundEventType.NEEDS_REVIEW)
    assert shop.order.refunded_minor == 2500
    assert shop.outcome(refund, event_type)
    assert shop.counted == [f"RefundStatus.{status}"]
    assert not shop.outcome(refund, RefundEventType.NEEDS_REVIEW)
    assert [each.status for each in shop.refunds.of_order(shop.order_id)] == [status]
    assert 2500 - shop.order.refunded_minor == left


def test_an_outcome_with_another_amount_is_an_error(shop: RefundShop) -> None:
    """Neither the refund nor the reservation changes."""
    refund, _ = shop.refund(1000, "a")
    for event_type in (RefundEventType.SUCCEEDED, RefundEventType.FAILED):
        with pytest.raises(RefundConflict):
            shop.outcome(refund.model_copy(update={"amount_minor": 999}), event_type)
    assert shop.refunds.of_order(shop.order_id) == [refund]
    assert shop.order.refunded_minor == 1000


def test_an_outcome_of_an_unknown_refund_is_an_error(shop: RefundShop) -> None:
    """SQS redelivers the message until it is in the DLQ."""
    refund, _ = shop.refund(1, "a")
    shop.client.delete_item(
        TableName=shop.refunds_table,
        Key=to_item({"order_id": refund.order_id, "refund_id": refund.refund_id}),
    )
    for event_type in (RefundEventType.SUCCEEDED, RefundEventType.FAILED):
        with pytest.raises(NoSuchRefund):
            shop.outcome(refund, event_type)
    assert shop.order.reserved_minor == 1


def test_a_canceled_order_s_refund_needs_no_request(shop: RefundShop) -> None:
    """The payment service refunds a charge of a canceled order by itself; the outcome is only counted."""
    refund, _ = shop.refund(2500, "a")
    unknown = refund.model_copy(update={"refund_id": "rfd_" + "0" * 32})
    shop.set_status(OrderStatus.CANCELED)
    assert shop.outcome(unknown, RefundEventType.SUCCEEDED)
    assert shop.counted == ["CanceledOrderRefunded"]
    assert shop.refunds.find(shop.order_id, unknown.refund_id) is None


def test_concurrent_refunds_never_exceed_the_amount_paid(endpoint: Endpoint) -> None:
    """20 refunds of 300 each, of 2500: eight are stored, with the retries of the API."""
    shop = RefundShop.on(endpoint.client())
    barrier = threading.Barrier(20)

    def refund(number: int) -> bool:
        barrier.wait()
        for _ in range(50):
            try:
                return shop.refund(300, f"key-{number}")[1]
            except OrderChanged:
                continue
            except ExceedsRefundable:
                return False
        raise AssertionError

    with ThreadPoolExecutor(20) as threads:
        made = list(threads.map(refund, range(20)))
    assert made.count(True) == 8
    assert shop.order.reserved_minor == 2400
    assert len(shop.refunds.of_order(shop.order_id)) == 8


def test_a_refund_that_waits_is_found(shop: RefundShop) -> None:
    """Through the index, page by page, and read as it is."""
    for number in range(3):
        shop.refund(100, f"key-{number}")
    refunds, until = WaitingRefunds(shop.client, shop.refunds_table), (NOW + timedelta(days=1)).timestamp()
    seen: list[Any] = []
    cursor = None
    for _ in range(4):
        page, cursor = refunds.page(shard_of(shop.order_id), until=until, after=cursor, limit=1)
        seen += page
        if cursor is None:
            break
    found = [each for item in refunds.read(seen) if (each := refunds.waiting(item))]
    assert len({each.event.id for each in found}) == 3
