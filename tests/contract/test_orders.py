"""The order service's conditional writes, on every DynamoDB that we can run: attempts, cancellations, refunds."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import boto3
import pytest

from onecharge.contract.cancellations import CANCEL_REQUESTED
from onecharge.contract.events import ATTEMPTS_MAX, EventType, PaymentEventType, PaymentOutcome, PaymentOutcomeEvent
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
from onecharge.orders.store import OrderStatusConflict, OrderStore
from onecharge.runtime.consumer import Done
from onecharge.runtime.dynamodb import from_item, to_item
from orders_api.cancel_order import store_cancellation
from orders_api.http import KeyReused
from orders_api.pay_again import AttemptsExhausted, NotDeclined, PaymentMethodRefused, make_attempt
from orders_api.place_order import OrderRequest, store_order
from orders_api.refund_store import ExceedsRefundable, NotPaid, OrderChanged, OrderRefundStore
from republish.waiting import WaitingOrders
from republish.waiting_refunds import WaitingRefunds
from testing.harness import Log, create_table
from tests.contract.conftest import Endpoint
from update_order.orders import UpdateOrder
from update_order.refunds import NoSuchRefund, RefundConflict, UpdateRefund

NOW = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)
ORDER = {
    "customer_id": "cus_1",
    "currency": "EUR",
    "payment_method": "pm_card_visa",
    "items": [{"sku": "mug", "quantity": 1, "unit_amount": 2500}],
}
TABLES = ("OrdersTable", "OrderRefundsTable")


@pytest.fixture(params=["moto", "ministack", "dynamodb_local"])
def dynamodb(request: pytest.FixtureRequest) -> Any:
    """A client of each DynamoDB in turn. The simulation's is not among them: it has neither maps nor lists."""
    if request.param == "moto":
        request.getfixturevalue("aws")
        return boto3.client("dynamodb")
    endpoint: Endpoint = request.getfixturevalue(request.param)
    return endpoint.client()


@dataclass(frozen=True)
class Shop:
    """One order and its refunds."""

    client: Any
    tables: Mapping[str, str]
    order_id: str
    counted: list[str]

    @classmethod
    def on(cls, client: Any) -> "Shop":
        tables = {name: create_table(client, f"{name}-{uuid4()}", name) for name in TABLES}
        orders = OrderStore(client, tables["OrdersTable"])
        order, _ = store_order(orders, OrderRequest.model_validate(ORDER), "key", correlation_id="c", now=NOW)
        return cls(client, tables, order.order_id, [])

    @property
    def orders(self) -> OrderStore:
        return OrderStore(self.client, self.tables["OrdersTable"])

    @property
    def refunds(self) -> OrderRefundStore:
        return OrderRefundStore(self.client, self.tables["OrderRefundsTable"], self.tables["OrdersTable"])

    @property
    def order(self) -> StoredOrder:
        order = self.orders.find(self.order_id)
        assert order
        return order

    @property
    def item(self) -> dict[str, Any]:
        key = to_item({"order_id": self.order_id})
        return from_item(
            self.client.get_item(TableName=self.tables["OrdersTable"], Key=key, ConsistentRead=True)["Item"]
        )

    def set_status(self, status: OrderStatus, **changes: Any) -> None:
        changes = {"status": status, **changes}
        self.client.update_item(
            TableName=self.tables["OrdersTable"],
            Key=to_item({"order_id": self.order_id}),
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in changes),
            ExpressionAttributeNames={f"#{name}": name for name in changes},
            ExpressionAttributeValues=to_item({f":{name}": value for name, value in changes.items()}),
        )

    def pay_again(self, payment_method: str, key: str) -> tuple[StoredOrder, bool]:
        return make_attempt(self.orders, self.order_id, payment_method, key, now=NOW)

    def payment(self, event_type: PaymentEventType, attempt: int = 1, **data: Any) -> None:
        """Handle a payment's outcome."""
        values = {"order_id": self.order_id, "attempt": attempt, "amount_minor": 2500, "currency": "EUR"}
        outcome = PaymentOutcome.model_validate({**values, "occurred_at": NOW, "revision": 1, **data})
        update = UpdateOrder(self.orders, Log().logger, self.counted.append)
        assert update(PaymentOutcomeEvent.of(event_type, outcome, correlation_id="c")) == Done()

    def refund(self, amount: int | None, key: str, *, order: StoredOrder | None = None) -> tuple[StoredRefund, bool]:
        return self.refunds.request(order or self.order, amount, key, correlation_id="c", now=NOW)

    def outcome(self, refund: StoredRefund, event_type: RefundOutcomeType) -> bool:
        """Handle a refund's outcome; returns whether the refund has followed it."""
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
            self.tables["OrderRefundsTable"],
            Log().logger,
            self.counted.append,
        )
        assert update(RefundOutcomeEvent.of(event_type, data, revision=1, correlation_id="c")) == Done()
        return self.counted != ["RefundUpdateIgnored"]


@pytest.fixture
def shop(dynamodb: Any) -> Shop:
    """An order that is paid."""
    shop = Shop.on(dynamodb)
    shop.set_status(OrderStatus.PAID)
    return shop


@pytest.fixture
def declined(dynamodb: Any) -> Shop:
    """An order that is declined."""
    shop = Shop.on(dynamodb)
    shop.payment(EventType.PAYMENT_DECLINED, decline_code="expired_card")
    return shop


# ---------------------------------------------------------------- attempts


def test_one_key_makes_one_attempt_for_ever(declined: Shop) -> None:
    """Neither a later attempt nor a later decline makes it forgotten; with another card it is refused."""
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


def test_no_attempt_is_made_beyond_the_last(declined: Shop) -> None:
    """Attempt 100 can be made, 101 cannot; nothing is stored of it."""
    declined.set_status(OrderStatus.PAYMENT_DECLINED, attempt=ATTEMPTS_MAX - 1)
    assert declined.pay_again("pm_a", "K100")[0].attempt == ATTEMPTS_MAX
    declined.set_status(OrderStatus.PAYMENT_DECLINED)
    before = declined.item
    with pytest.raises(AttemptsExhausted):
        declined.pay_again("pm_a", "K101")
    assert declined.item == before
    assert not declined.pay_again("pm_a", "K100")[1]


def test_a_card_that_must_not_be_tried_again_is_refused(declined: Shop) -> None:
    """As soon as the decline that says so is written, in the same write."""
    declined.pay_again("pm_a", "a")
    declined.payment(EventType.PAYMENT_DECLINED, attempt=2, advice_code="do_not_try_again")
    declined.payment(EventType.PAYMENT_DECLINED, attempt=2, advice_code="do_not_try_again")
    assert declined.item["refused_payment_methods"] == ["pm_a"]
    with pytest.raises(PaymentMethodRefused):
        declined.pay_again("pm_a", "b")
    declined.pay_again("pm_b", "c")
    declined.payment(EventType.PAYMENT_DECLINED, attempt=3, advice_code="do_not_try_again")
    assert declined.item["refused_payment_methods"] == ["pm_a", "pm_b"]


def test_twenty_cards_at_once_make_one_attempt(endpoint: Endpoint) -> None:
    """Each with a key and a card of its own; and twenty retries of the one that was made are all replayed."""
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


def test_what_is_waited_for_is_found_by_its_status(declined: Shop) -> None:
    """Orders and refunds, through their indexes, page by page, and read as they are."""
    orders = WaitingOrders(declined.client, declined.tables["OrdersTable"], OrderStatus.CANCELING)
    until = (NOW + timedelta(days=1)).timestamp()
    assert orders.page(until=until, after=None, limit=1)[0] == []
    store_cancellation(declined.orders, declined.order_id, OrderStatus.CANCELING, now=NOW + timedelta(hours=1))
    [key], _ = orders.page(until=until, after=None, limit=1)
    assert orders.page(until=(NOW - timedelta(days=1)).timestamp(), after=None, limit=1)[0] == []
    waiting = orders.read(key)
    assert waiting
    assert (waiting.event.type, waiting.since) == (CANCEL_REQUESTED, NOW.timestamp() + 3600)
    declined.set_status(OrderStatus.PAID)
    for number in range(3):
        declined.refund(100, f"key-{number}")
    refunds = WaitingRefunds(declined.client, declined.tables["OrderRefundsTable"])
    seen: list[Any] = []
    cursor = None
    for _ in range(4):
        page, cursor = refunds.page(until=until, after=cursor, limit=1)
        seen += page
        if cursor is None:
            break
    found = [each for key in seen if (each := refunds.read(key))]
    assert len({each.event.id for each in found}) == 3


# ---------------------------------------------------------------- cancellations and outcomes


def test_a_cancellation_moves_the_order_once_and_for_all(declined: Shop) -> None:
    """CANCELING, CANCELING again, CANCELED; then neither a card nor CANCELING again."""
    orders, order_id = declined.orders, declined.order_id
    assert "expires_at" in declined.item
    for hours in (1, 2):
        order = store_cancellation(orders, order_id, OrderStatus.CANCELING, now=NOW + timedelta(hours=hours))
        assert order.status is OrderStatus.CANCELING
    assert declined.item["cancel_requested_at"] == (NOW + timedelta(hours=1)).isoformat()
    assert "expires_at" not in declined.item
    with pytest.raises(NotDeclined):
        declined.pay_again("pm_a", "a")
    for _ in range(2):
        assert store_cancellation(orders, order_id, OrderStatus.CANCELED, now=NOW).status is OrderStatus.CANCELED
    with pytest.raises(OrderStatusConflict):
        store_cancellation(orders, order_id, OrderStatus.CANCELING, now=NOW)
    assert "expires_at" in declined.item


def test_late_truth_wins_over_a_decline(declined: Shop) -> None:
    """The first attempt succeeded after the second was made: paid, and the second is not charged for it."""
    declined.pay_again("pm_a", "a")
    declined.payment(EventType.PAYMENT_DECLINED, attempt=1)
    assert declined.order.status is OrderStatus.PENDING
    declined.payment(EventType.PAYMENT_SUCCEEDED, attempt=1)
    assert (declined.order.status, declined.order.paid_attempt) == (OrderStatus.PAID, 1)
    declined.payment(EventType.PAYMENT_DECLINED, attempt=2)
    assert (declined.order.status, declined.order.paid_attempt) == (OrderStatus.PAID, 1)


def test_what_stripe_shows_is_kept(shop: Shop) -> None:
    """What is refunded by the newest revision, and the dispute as it ended, in whichever order the events arrive."""
    for revision, amount, dispute in [(3, 500, "under_review"), (5, 200, "lost"), (4, 900, "needs_response")]:
        shown: dict[str, Any] = {"amount_refunded_minor": amount, "dispute_status": dispute}
        shop.payment(EventType.PAYMENT_SUCCEEDED, revision=revision, **shown)
    assert (shop.order.stripe_refunded_minor, shop.order.dispute_status) == (200, "lost")
    assert shop.order.refunded_minor == 200


# ---------------------------------------------------------------- refunds


def test_a_refund_is_stored_with_its_reservation(shop: Shop) -> None:
    """Once for each key; the retry finds it."""
    refund, is_new = shop.refund(1000, "a")
    assert (is_new, refund.status, shop.order.reserved_minor) == (True, RefundStatus.PENDING, 1000)
    assert shop.refund(1000, "a") == (refund, False)
    with pytest.raises(KeyReused):
        shop.refund(999, "a")
    assert shop.order.reserved_minor == 1000
    assert shop.refunds.of_order(shop.order_id) == [refund]


def test_never_more_is_reserved_than_was_paid(shop: Shop) -> None:
    """Whether it is seen before the write or only by its condition."""
    as_it_was = shop.order
    shop.refund(2000, "a")
    with pytest.raises(ExceedsRefundable):
        shop.refund(501, "b")
    with pytest.raises(OrderChanged):
        shop.refund(501, "b", order=as_it_was)
    assert shop.order.reserved_minor == 2000
    assert shop.refund(None, "b")[0].amount_minor == 500
    assert len(shop.refunds.of_order(shop.order_id)) == 2


def test_refunds_by_hand_leave_less(shop: Shop) -> None:
    """Whether they are seen before the write or only by its condition."""
    as_it_was = shop.order
    shop.payment(EventType.PAYMENT_SUCCEEDED, amount_refunded_minor=2000)
    with pytest.raises(ExceedsRefundable):
        shop.refund(501, "a")
    with pytest.raises(OrderChanged):
        shop.refund(501, "a", order=as_it_was)
    assert shop.refund(None, "b")[0].amount_minor == 500


def test_only_a_paid_order_is_refunded(shop: Shop) -> None:
    """Whether it is seen before the write or only by its condition."""
    paid = shop.order
    shop.set_status(OrderStatus.NEEDS_REVIEW)
    with pytest.raises(NotPaid):
        shop.refund(1, "a")
    with pytest.raises(OrderChanged):
        shop.refund(1, "a", order=paid)
    assert shop.refunds.of_order(shop.order_id) == []


def test_a_retry_beside_its_first_try_finds_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have found nothing, and the first was faster."""
    before = shop.order
    refund, _ = shop.refund(2500, "a")
    monkeypatch.setattr(OrderRefundStore, "find", lambda *_: None)
    assert shop.refund(2500, "a", order=before) == (refund, False)


def test_a_refund_that_failed_releases_its_amount_once(shop: Shop) -> None:
    """However often that event arrives, and whatever arrives later."""
    refund, _ = shop.refund(2500, "a")
    assert [shop.outcome(refund, RefundEventType.FAILED) for _ in range(3)] == [True, False, False]
    assert not shop.outcome(refund, RefundEventType.SUCCEEDED)
    assert shop.order.refunded_minor == 0
    [shown] = shop.refunds.of_order(shop.order_id)
    assert shown.status is RefundStatus.FAILED
    assert shop.refund(2500, "b")[1]


def test_refund_failed_after_success_frees_the_amount_once(shop: Shop) -> None:
    """The bank returned it: FAILED with an alarm, free to be refunded again once Stripe's figure has fallen."""
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
def test_a_refund_in_review_is_decided(
    shop: Shop, event_type: RefundOutcomeType, status: RefundStatus, left: int
) -> None:
    """It keeps its reservation until it has failed; a failure out of review raises no alarm."""
    refund, _ = shop.refund(2500, "a")
    assert shop.outcome(refund, RefundEventType.NEEDS_REVIEW)
    assert shop.order.refunded_minor == 2500
    assert shop.outcome(refund, event_type)
    assert shop.counted == [f"RefundStatus.{status}"]
    assert not shop.outcome(refund, RefundEventType.NEEDS_REVIEW)
    assert [each.status for each in shop.refunds.of_order(shop.order_id)] == [status]
    assert 2500 - shop.order.refunded_minor == left


def test_an_outcome_of_another_amount_is_an_error(shop: Shop) -> None:
    """Neither the refund nor the reservation changes."""
    refund, _ = shop.refund(1000, "a")
    for event_type in (RefundEventType.SUCCEEDED, RefundEventType.FAILED):
        with pytest.raises(RefundConflict):
            shop.outcome(refund.model_copy(update={"amount_minor": 999}), event_type)
    assert shop.refunds.of_order(shop.order_id) == [refund]
    assert shop.order.refunded_minor == 1000


def test_an_outcome_of_no_refund_is_an_error(shop: Shop) -> None:
    """The message comes back, and ends in the DLQ where somebody sees it."""
    refund, _ = shop.refund(1, "a")
    shop.client.delete_item(
        TableName=shop.tables["OrderRefundsTable"],
        Key=to_item({"order_id": refund.order_id, "refund_id": refund.refund_id}),
    )
    for event_type in (RefundEventType.SUCCEEDED, RefundEventType.FAILED):
        with pytest.raises(NoSuchRefund):
            shop.outcome(refund, event_type)
    assert shop.order.reserved_minor == 1


def test_a_refund_of_a_canceled_order_needs_no_request(shop: Shop) -> None:
    """The payment service makes it by itself when a canceled order was charged: its outcome is no error."""
    refund, _ = shop.refund(2500, "a")
    unknown = refund.model_copy(update={"refund_id": "rfd_" + "0" * 32})
    shop.set_status(OrderStatus.CANCELED)
    assert shop.outcome(unknown, RefundEventType.SUCCEEDED)
    assert shop.counted == ["CanceledOrderRefunded"]
    assert shop.refunds.find(shop.order_id, unknown.refund_id) is None


def test_twenty_refunds_at_once_reserve_no_more_than_was_paid(endpoint: Endpoint) -> None:
    """Of 300 each, of 2500: eight of them have room, with retries as the API makes them."""
    shop = Shop.on(endpoint.client())
    shop.set_status(OrderStatus.PAID)
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
