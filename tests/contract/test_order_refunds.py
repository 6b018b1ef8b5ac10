"""The transactions of refunds, on both DynamoDBs: request, reservation, outcome."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import permutations
from typing import Any, Self
from uuid import uuid4

import pytest

from onecharge.contract.events import EventType
from onecharge.contract.refunds import (
    RefundOutcome,
    RefundOutcomeEvent,
    RefundOutcomeType,
    RefundState,
)
from onecharge.contract.states import OrderStatus
from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.refunds import REFUND_OUTCOMES, StoredRefund, waits
from onecharge.orders.schema import StoredOrder
from onecharge.orders.waiting import WaitingIndex
from onecharge.runtime.consumer import Done
from onecharge.runtime.dynamodb import from_item, shard_of, to_item
from onecharge.runtime.http_api import Problem
from orders_api.http import Dependencies
from orders_api.refund_order import RefundRequest, request_refund
from republish.waiting import waiting_refunds
from tests.contract.conftest import Endpoint
from tests.support.fixed_prices import price_of
from tests.support.harness import Log, create_table
from tests.support.one_order import NOW, OneOrder, refused
from tests.support.silent import SILENT
from update_order.refunds import NoSuchRefund, RefundConflict, update_refund


@dataclass(frozen=True)
class RefundShop(OneOrder):
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

    def refund(self, amount: int | None, key: str) -> tuple[StoredRefund, bool]:
        deps = Dependencies(self.orders, self.refunds, "s", {}, price_of, Log().logger, SILENT, lambda: NOW)
        return request_refund(
            deps, self.order_id, RefundRequest(amount=amount), key, requested_by="me", correlation_id="c", now=NOW
        )

    def is_reserved(self, amount: int, order: StoredOrder) -> bool:
        """Whether this much can be reserved by one who has read the order as it was."""
        refund = StoredRefund(
            order_id=self.order_id,
            refund_id=f"rfd_{uuid4().hex}",
            attempt=1,
            amount_minor=amount,
            currency="EUR",
            fingerprint="f",
            requested_at=NOW.isoformat(),
            correlation_id="c",
            status=RefundState.PENDING,
        )
        return self.refunds.store_and_reserve(refund, order)

    def outcome(
        self, refund: StoredRefund, event_type: RefundOutcomeType, *, revision: int = 1, reason: str | None = None
    ) -> bool:
        """Handle a refund's outcome; returns whether it changed the refund."""
        self.counted.clear()
        data = RefundOutcome(
            order_id=refund.order_id,
            refund_id=refund.refund_id,
            attempt=1,
            amount_minor=refund.amount_minor,
            currency="EUR",
            failure_code="charge_disputed" if event_type is EventType.REFUND_FAILED else None,
            pending_reason=reason,
            revision=revision,
            occurred_at=NOW,
        )
        event = RefundOutcomeEvent.of(event_type, data, correlation_id="c")
        done = update_refund(
            event,
            orders=self.orders,
            refunds_table=self.refunds_table,
            logger=Log().logger,
            count=self.counted.append,
        )
        assert done == Done()
        return self.counted != ["RefundUpdateIgnored"]


@pytest.fixture
def shop(dynamodb: Any) -> RefundShop:
    """A PAID order."""
    return RefundShop.on(dynamodb)


def test_only_a_paid_order_is_refunded(shop: RefundShop) -> None:
    """Refused before the write, or by the write's condition."""
    paid = shop.order
    shop.set_status(OrderStatus.CANCELED)
    assert refused(lambda: shop.refund(1, "a")) == "not-paid"
    assert not shop.is_reserved(1, paid)
    assert shop.refunds.of_order(shop.order_id) == []


def test_a_concurrent_retry_returns_the_same_refund(shop: RefundShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither finds a refund; the retry's write meets the stored one and returns it, although more is left."""
    before = shop.order
    refund, _ = shop.refund(1000, "a")
    read, find = iter([before]), OrderRefundStore.find
    found = iter([None])
    monkeypatch.setattr(Dependencies, "find_order", lambda *_: next(read, shop.order))
    monkeypatch.setattr(OrderRefundStore, "find", lambda *given: next(found, find(*given)))
    assert shop.refund(1000, "a") == (refund, False)
    assert shop.order.reserved_minor == 1000


def test_a_failed_refund_releases_its_amount_once(shop: RefundShop) -> None:
    """However often the event is delivered, and whatever arrives later."""
    refund, _ = shop.refund(2500, "a")
    assert [shop.outcome(refund, EventType.REFUND_FAILED) for _ in range(3)] == [True, False, False]
    assert not shop.outcome(refund, EventType.REFUND_SUCCEEDED)
    assert shop.order.refunded_minor == 0
    [shown] = shop.refunds.of_order(shop.order_id)
    assert shown.status is RefundState.FAILED
    assert shop.refund(2500, "b")[1]


def test_a_failed_refund_that_a_restored_order_does_not_know_releases_nothing(shop: RefundShop) -> None:
    """The order is as it was before the refund was requested: without a reservation, or with another refund's."""
    for reserved in (None, 300):
        refund, _ = shop.refund(400, f"of {reserved}")
        item = shop.client.get_item(TableName=shop.table, Key={"order_id": {"S": shop.order_id}})["Item"]
        restored = {name: value for name, value in item.items() if name != "reserved_minor"}
        shop.client.put_item(TableName=shop.table, Item=restored | to_item({"reserved_minor": reserved}))
        assert [shop.outcome(refund, EventType.REFUND_FAILED) for _ in range(2)] == [True, False]
        assert shop.order.reserved_minor == (reserved or 0)


def test_a_refund_that_fails_after_success_releases_its_amount_once(shop: RefundShop) -> None:
    """FAILED with an alarm; refundable again when Stripe's refunded amount has decreased."""
    refund, _ = shop.refund(2500, "a")
    assert shop.outcome(refund, EventType.REFUND_SUCCEEDED)
    shop.payment(EventType.PAYMENT_SUCCEEDED, amount_refunded_minor=2500, revision=3)
    assert shop.outcome(refund, EventType.REFUND_FAILED)
    assert sorted(shop.counted) == ["Alarm", "RefundReturned", "RefundStatus.FAILED"]
    assert [shop.outcome(refund, EventType.REFUND_FAILED) for _ in range(3)] == [False] * 3
    assert not shop.outcome(refund, EventType.REFUND_SUCCEEDED)
    assert shop.order.refunded_minor == 2500
    shop.payment(EventType.PAYMENT_SUCCEEDED, amount_refunded_minor=0, revision=4)
    shop.payment(EventType.PAYMENT_SUCCEEDED, amount_refunded_minor=2500, revision=3)
    [shown] = shop.refunds.of_order(shop.order_id)
    assert (shown.status, shop.order.refunded_minor) == (RefundState.FAILED, 0)
    assert shop.refund(None, "b")[0].amount_minor == 2500
    assert shop.order.refunded_minor == 2500


@pytest.mark.parametrize(
    ("event_type", "status", "left"),
    [
        (EventType.REFUND_SUCCEEDED, RefundState.SUCCEEDED, 0),
        (EventType.REFUND_FAILED, RefundState.FAILED, 2500),
    ],
)
def test_a_refund_in_review_succeeds_or_fails(
    shop: RefundShop, event_type: RefundOutcomeType, status: RefundState, left: int
) -> None:
    """It keeps its reservation until it fails; a failure after review raises no alarm."""
    refund, _ = shop.refund(2500, "a")
    assert shop.outcome(refund, EventType.REFUND_NEEDS_REVIEW)
    assert shop.order.refunded_minor == 2500
    assert shop.outcome(refund, event_type)
    assert shop.counted == [f"RefundStatus.{status}"]
    assert not shop.outcome(refund, EventType.REFUND_NEEDS_REVIEW)
    assert [each.status for each in shop.refunds.of_order(shop.order_id)] == [status]
    assert 2500 - shop.order.refunded_minor == left


@pytest.mark.parametrize("revisions", list(permutations((3, 4, 5))))
def test_a_refund_shows_why_stripe_holds_it(shop: RefundShop, revisions: tuple[int, ...]) -> None:
    """As the newest revision of the refund's row says, in whichever order the events come."""
    refund, _ = shop.refund(400, "key")
    reasons = {3: "insufficient_funds", 4: "processing", 5: None}
    for revision in revisions:
        shop.outcome(refund, EventType.REFUND_SUCCEEDED, revision=revision, reason=reasons[revision])
    found = shop.refunds.find(shop.order_id, refund.refund_id)
    assert found is not None
    assert (found.status, found.pending_reason) == (RefundState.SUCCEEDED, None)


def test_a_refund_that_is_held_says_so(shop: RefundShop) -> None:
    """Also if it was not at first."""
    for number, first in enumerate([None, "insufficient_funds"]):
        refund, _ = shop.refund(100, f"key {number}")
        for revision, reason in ((3, first), (4, "insufficient_funds")):
            shop.outcome(refund, EventType.REFUND_SUCCEEDED, revision=revision, reason=reason)
        found = shop.refunds.find(shop.order_id, refund.refund_id)
        assert found is not None
        assert found.pending_reason == "insufficient_funds"


def kept(item: Mapping[str, Any]) -> set[str]:
    """What keeps an item in the index, or lets it expire."""
    return {"waiting_shard", "expires_at"} & item.keys()


def test_each_outcome_puts_a_refund_into_the_index_or_takes_it_out(shop: RefundShop) -> None:
    """A refund that waits is in the index and is kept, any other one is not and expires: whatever outcome moves it from
    which status, and whichever of the two attributes it has."""
    index, seen = WaitingIndex(shop.client, shop.refunds_table, "requested_at"), set()

    def item(refund: StoredRefund) -> dict[str, Any]:
        key = to_item({"order_id": refund.order_id, "refund_id": refund.refund_id})
        return from_item(shop.client.get_item(TableName=shop.refunds_table, Key=key, ConsistentRead=True)["Item"])

    for event_type, transition in REFUND_OUTCOMES.items():
        for origin in transition.origins:
            left: dict[str, Any]
            for left in ({}, {"waiting_shard": "0"}, {"expires_at": 1}):
                refund, _ = shop.refund(1, f"{event_type} {origin} {left}")
                assert kept(item(refund)) == {"waiting_shard"}
                stored = {name: value for name, value in item(refund).items() if name != "waiting_shard"}
                moved = to_item({**stored, "status": origin, **left})
                shop.client.put_item(TableName=shop.refunds_table, Item=moved)
                assert shop.outcome(refund, event_type)
                is_waiting = waits(transition.status)
                assert kept(item(refund)) == ({"waiting_shard"} if is_waiting else {"expires_at"}), transition
                entries = [entry["refund_id"] for entry in index.entries(until=NOW.timestamp())]
                assert (refund.refund_id in entries) == is_waiting
                seen.add(transition.status)
    assert seen == {*RefundState} - {RefundState.PENDING}


def test_a_refund_leaves_its_order_where_it_was(shop: RefundShop) -> None:
    """Neither its request, nor its outcome, nor Stripe's total puts the order into the index or keeps it."""
    shop.clear("waiting_shard")
    shop.set_status(OrderStatus.PAID, expires_at=7)
    for event_type in (EventType.REFUND_SUCCEEDED, EventType.REFUND_FAILED):
        refund, _ = shop.refund(100, event_type)
        assert shop.outcome(refund, event_type, reason="processing")
    shop.payment(EventType.PAYMENT_SUCCEEDED, amount_refunded_minor=100, revision=3)
    assert (kept(shop.item), shop.item["expires_at"], shop.item["stripe_refunded_minor"]) == ({"expires_at"}, 7, 100)


def test_an_outcome_with_another_amount_is_an_error(shop: RefundShop) -> None:
    """Neither the refund nor the reservation changes."""
    refund, _ = shop.refund(1000, "a")
    for event_type in (EventType.REFUND_SUCCEEDED, EventType.REFUND_FAILED):
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
    for event_type in (EventType.REFUND_SUCCEEDED, EventType.REFUND_FAILED):
        with pytest.raises(NoSuchRefund):
            shop.outcome(refund, event_type)
    assert shop.order.reserved_minor == 1


def test_concurrent_refunds_never_exceed_the_amount_paid(endpoint: Endpoint) -> None:
    """20 refunds of 300 each, of 2500: eight are stored, with the retries of the API."""
    shop = RefundShop.on(endpoint.client())
    barrier = threading.Barrier(20)

    def refund(number: int) -> bool:
        barrier.wait()
        for _ in range(50):
            try:
                return shop.refund(300, f"key-{number}")[1]
            except Problem as problem:
                if problem.kind != "try-again":
                    return problem.kind != "more-than-is-left"
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
    refunds, until = waiting_refunds(shop.client, shop.refunds_table), (NOW + timedelta(days=1)).timestamp()
    seen: list[Any] = []
    cursor = None
    for _ in range(4):
        page, cursor = refunds.index.page(shard_of(shop.order_id), until=until, after=cursor, limit=1)
        seen += page
        if cursor is None:
            break
    assert len({event.id for item in refunds.read(seen) if (event := refunds.event_of(item))}) == 3
