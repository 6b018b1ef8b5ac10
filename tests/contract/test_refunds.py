"""Refunds' conditional writes do what the protocol asks of them, on every DynamoDB that we can run."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from onecharge.deliveries import Done
from onecharge.dynamodb import to_item
from onecharge.events import EventType, RefundEventType, RefundOutcome, RefundOutcomeEvent
from onecharge.states import OrderStatus, RefundStatus
from place_order.orders import KeyReused, NotNow, OrderRequest, Orders, StoredOrder
from place_order.refunds import OrderMoved, RefundRequest, Refunds, StoredRefund, TooMuch
from tests.conftest import Log, create_table
from tests.contract.conftest import Endpoint
from tests.simulation.dynamodb import MemoryDynamoDB
from update_order.refunds import NoSuchRefund, UpdateRefund

NOW = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)
ORDER = {
    "customer_id": "cus_1",
    "currency": "EUR",
    "payment_method": "pm_card_visa",
    "items": [{"sku": "mug", "quantity": 1, "unit_amount": 2500}],
}


@dataclass(frozen=True)
class Shop:
    """An order that is paid, and its refunds."""

    client: Any
    tables: Mapping[str, str]
    order_id: str

    @property
    def orders(self) -> Orders:
        return Orders(self.client, self.tables["OrdersTable"])

    @property
    def refunds(self) -> Refunds:
        return Refunds(self.client, self.tables["OrderRefundsTable"], self.tables["OrdersTable"])

    @property
    def order(self) -> StoredOrder:
        order = self.orders.find(self.order_id)
        assert order
        return order

    def stands(self, status: OrderStatus) -> None:
        self.client.update_item(
            TableName=self.tables["OrdersTable"],
            Key=to_item({"order_id": self.order_id}),
            UpdateExpression="SET #status = :status",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues=to_item({":status": status}),
        )

    def refund(self, amount: int | None, key: str, *, order: StoredOrder | None = None) -> tuple[StoredRefund, bool]:
        asked = RefundRequest(amount=amount)
        return self.refunds.request(order or self.order, asked, key, correlation_id="c", now=NOW)

    def outcome(self, refund: StoredRefund, event_type: RefundEventType) -> bool:
        """Tell what became of it; says whether that moved the refund."""
        counted: list[str] = []
        data = RefundOutcome(
            order_id=refund.order_id,
            refund_id=refund.refund_id,
            attempt=1,
            amount_minor=refund.amount_minor,
            currency="EUR",
            failure_code="charge_disputed" if event_type is EventType.REFUND_FAILED else None,
            occurred_at=NOW,
        )
        update = UpdateRefund(
            self.client, self.tables["OrdersTable"], self.tables["OrderRefundsTable"], Log().logger, counted.append
        )
        assert update(RefundOutcomeEvent.of(event_type, data, correlation_id="c")) == Done()
        return counted != ["RefundUnmoved"]


KEYS = {"OrdersTable": ("order_id",), "OrderRefundsTable": ("order_id", "refund_id")}


def paid_order(client: Any) -> Shop:
    if isinstance(client, MemoryDynamoDB):
        client.keys, tables = KEYS, {name: name for name in KEYS}
    else:
        tables = {name: create_table(client, f"{name}-{uuid4()}", name) for name in KEYS}
    orders = Orders(client, tables["OrdersTable"])
    order, _ = orders.place(OrderRequest.model_validate(ORDER), "key", correlation_id="c", now=NOW)
    shop = Shop(client, tables, order.order_id)
    shop.stands(OrderStatus.PAID)
    return shop


@pytest.fixture
def shop(dynamodb: Any) -> Shop:
    return paid_order(dynamodb)


def test_a_refund_is_stored_with_its_reservation(shop: Shop) -> None:
    """Once for each key; the retry finds it."""
    refund, is_new = shop.refund(1000, "a")
    assert (is_new, refund.status, shop.order.refunded_minor) == (True, RefundStatus.PENDING, 1000)
    assert shop.refund(1000, "a") == (refund, False)
    with pytest.raises(KeyReused):
        shop.refund(999, "a")
    assert shop.order.refunded_minor == 1000
    assert shop.refunds.of_order(shop.order_id) == [refund]


def test_never_more_is_reserved_than_was_paid(shop: Shop) -> None:
    """Whether it is seen before the write or only by its condition."""
    as_it_was = shop.order
    shop.refund(2000, "a")
    with pytest.raises(TooMuch):
        shop.refund(501, "b")
    with pytest.raises(OrderMoved):
        shop.refund(501, "b", order=as_it_was)
    assert shop.order.refunded_minor == 2000
    assert shop.refund(None, "b")[0].amount_minor == 500
    assert len(shop.refunds.of_order(shop.order_id)) == 2


def test_only_a_paid_order_is_refunded(shop: Shop) -> None:
    """Whether it is seen before the write or only by its condition."""
    paid = shop.order
    shop.stands(OrderStatus.NEEDS_REVIEW)
    with pytest.raises(NotNow):
        shop.refund(1, "a")
    with pytest.raises(OrderMoved):
        shop.refund(1, "a", order=paid)
    assert shop.refunds.of_order(shop.order_id) == []


def test_a_retry_beside_its_first_try_finds_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have found nothing, and the first was faster."""
    refund, _ = shop.refund(2500, "a")
    monkeypatch.setattr(Refunds, "find", lambda *_: None)
    before = StoredOrder(**{**vars(shop.order), "refunded_minor": 0})
    assert shop.refund(2500, "a", order=before) == (refund, False)


def test_a_refund_that_failed_gives_its_amount_back_once(shop: Shop) -> None:
    """However often that is told, and whatever else is told later."""
    refund, _ = shop.refund(2500, "a")
    assert [shop.outcome(refund, EventType.REFUND_FAILED) for _ in range(3)] == [True, False, False]
    assert not shop.outcome(refund, EventType.REFUND_SUCCEEDED)
    assert shop.order.refunded_minor == 0
    [shown] = shop.refunds.of_order(shop.order_id)
    assert shown.status is RefundStatus.FAILED
    assert shop.refund(2500, "b")[1]


@pytest.mark.parametrize(
    ("event_type", "status"),
    [
        (EventType.REFUND_SUCCEEDED, RefundStatus.SUCCEEDED),
        (EventType.REFUND_NEEDS_REVIEW, RefundStatus.NEEDS_REVIEW),
    ],
)
def test_any_other_outcome_keeps_the_reservation(shop: Shop, event_type: RefundEventType, status: RefundStatus) -> None:
    """What is refunded, or may be, cannot be refunded again; a late failure gives nothing back."""
    refund, _ = shop.refund(2500, "a")
    assert shop.outcome(refund, event_type)
    assert not shop.outcome(refund, EventType.REFUND_FAILED)
    assert shop.order.refunded_minor == 2500
    assert [each.status for each in shop.refunds.of_order(shop.order_id)] == [status]


def test_an_outcome_of_no_refund_is_an_error(shop: Shop) -> None:
    """The message comes back, and ends in the DLQ where somebody sees it."""
    refund, _ = shop.refund(1, "a")
    shop.client.delete_item(
        TableName=shop.tables["OrderRefundsTable"],
        Key=to_item({"order_id": refund.order_id, "refund_id": refund.refund_id}),
    )
    for event_type in (EventType.REFUND_SUCCEEDED, EventType.REFUND_FAILED):
        with pytest.raises(NoSuchRefund):
            shop.outcome(refund, event_type)
    assert shop.order.refunded_minor == 1


def test_twenty_refunds_at_once_reserve_no_more_than_was_paid(endpoint: Endpoint) -> None:
    """Of 300 each, of 2500: eight of them have room, with retries as the API makes them."""
    client = endpoint.client()
    shop = paid_order(client)
    barrier = threading.Barrier(20)

    def refund(number: int) -> bool:
        barrier.wait()
        for _ in range(50):
            try:
                return shop.refund(300, f"key-{number}")[1]
            except OrderMoved:
                continue
            except TooMuch:
                return False
        raise AssertionError

    with ThreadPoolExecutor(20) as threads:
        made = list(threads.map(refund, range(20)))
    assert made.count(True) == 8
    assert shop.order.refunded_minor == 2400
    assert len(shop.refunds.of_order(shop.order_id)) == 8
