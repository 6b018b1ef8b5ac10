"""The transactions of refunds: request, outcome. Left is what may still be refunded.

test_replay.py sends the same requests to moto's DynamoDB.
"""

from collections.abc import Callable
from itertools import combinations, permutations
from typing import Any

import pytest

from onecharge.contract.events import EventType
from onecharge.contract.states import OrderStatus
from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.waiting import WaitingIndex
from onecharge.runtime.alarms import RowMissing
from onecharge.runtime.consumer import BackOff, PoisonMessage
from tests.support.one_order import NOW, refused
from tests.support.refunded_order import RefundedOrder

KINDS = {"refused": 0, "made": 400, "returned": 0}
"""The outcomes of a refund of 400, in the order in which they may follow each other, each with Stripe's total then."""
STATES = {"refused": "FAILED", "made": "SUCCEEDED", "returned": "FAILED"}
OUTCOMES = [(kind, place, total) for place, (kind, total) in enumerate(KINDS.items(), start=1)]


@pytest.fixture
def shop() -> RefundedOrder:
    """A paid order of 2,500."""
    return RefundedOrder.placed()


# ---------------------------------------------------------------- requests


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], object], after: Callable[[], object] = lambda: None
) -> None:
    """These happen once: after the order was read and before its refunds are, and after that."""
    todo, of_order = [(before, after)], OrderRefundStore.of_order

    def interrupted(*given: Any) -> Any:
        first, then = todo.pop() if todo else (lambda: None,) * 2
        first()
        found = of_order(*given)
        then()
        return found

    monkeypatch.setattr(OrderRefundStore, "of_order", interrupted)


def test_a_reservation_that_takes_anothers_place_is_noticed(
    shop: RefundedOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As much waits as when the order was read, by another refund, which the query of its refunds has not seen."""
    first = shop.refund(100, "first")
    meanwhile(monkeypatch, lambda: shop.outcome(first, "refused", revision=0), lambda: shop.refund(100, "second"))
    assert (shop.refund(None, "third").amount_minor, shop.left) == (2400, 0)


def test_a_refund_by_hand_since_the_read_is_noticed(shop: RefundedOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction's condition fails, and the rest decides."""
    meanwhile(monkeypatch, lambda: None, lambda: shop.payment(EventType.PAYMENT_SUCCEEDED, amount_refunded_minor=2000))
    assert (refused(lambda: shop.refund(1000, "a")), shop.left) == ("more-than-is-left", 500)


def test_a_concurrent_retry_returns_the_same_refund(shop: RefundedOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither finds one, and one is stored."""
    made: list[Any] = []
    meanwhile(monkeypatch, lambda: made.append(shop.refund(1000, "a")))
    assert [shop.refund(1000, "a")] == made == shop.refunds.of_order(shop.order_id)
    assert shop.left == 1500
    # Nor is a refund written over, though the order is as it was read.
    assert not shop.refunds.store(made[0], shop.order)


# ---------------------------------------------------------------- outcomes


@pytest.mark.parametrize("told", [each for size in (1, 2, 3) for each in combinations(OUTCOMES, size)], ids=str)
def test_outcomes_in_any_order_end_alike(told: Any) -> None:
    """Each order of these, with one twice: the refund, what is left and Stripe's total are the last one's."""
    last, _, total = told[-1]
    for sequence in permutations(told):
        shop = RefundedOrder.placed()
        refund = shop.refund(400, "a")
        for kind, place, sum_then in (*sequence, sequence[0]):
            shop.outcome(refund, kind, revision=place, total=sum_then)
        item = shop.stored(refund)
        assert (item["status"], item.get("stripe_refund_id")) == (STATES[last], None if last == "refused" else "re_1")
        assert item.get("failure_code") == (None if last == "made" else last), sequence
        assert (shop.order.stripe_refunded_minor, shop.left) == (total, 2500 - total), sequence


def test_only_a_failure_is_an_alarm_and_only_once(shop: RefundedOrder) -> None:
    """A duplicate changes nothing."""
    for number, kind in enumerate(KINDS):
        refund = shop.refund(400, kind)
        shop.outcome(refund, kind, revision=number + 1)
        assert shop.counted.count("Alarm") == (STATES[kind] == "FAILED"), kind
        assert (shop.outcome(refund, kind, revision=number + 2), shop.counted) == (False, [])


@pytest.mark.parametrize(("revision", "total", "dispute"), [(6, 700, "won"), (7, 700, "won"), (8, 1100, "lost")])
def test_only_a_newer_revision_of_the_payment_counts(
    shop: RefundedOrder, revision: int, total: int, dispute: str
) -> None:
    """The refund has ended all the same: an event of its payment may have overtaken its own."""
    refund = shop.refund(400, "a")
    shop.payment(EventType.PAYMENT_SUCCEEDED, revision=7, amount_refunded_minor=700, dispute_status="won")
    assert shop.outcome(refund, "made", revision=revision, total=1100, dispute="lost")
    order = shop.order
    assert (order.stripe_refunded_minor, shop.left, order.dispute_status) == (total, 2500 - total, dispute)


def test_two_outcomes_at_once_are_both_written(shop: RefundedOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order has changed since it was read: it is read again."""
    first, second = shop.refund(1000, "a"), shop.refund(500, "b")
    meanwhile(monkeypatch, lambda: shop.outcome(second, "made", revision=1, total=500))
    assert shop.outcome(first, "made", revision=2, total=1500)
    assert (shop.order.stripe_refunded_minor, shop.left) == (1500, 1000)


def test_a_request_counts_what_waits_and_what_was_made_anew(shop: RefundedOrder) -> None:
    """The order was put back to before the refund that waits, or before one that has ended."""
    before = shop.order
    made = shop.refund(400, "a")
    shop.put_back(before)
    assert refused(lambda: shop.refund(2101, "b")) == "more-than-is-left"
    assert (shop.refund(1000, "b").amount_minor, shop.left) == (1000, 1100)
    shop.outcome(made, "made", revision=1, total=400)
    shop.put_back(before)
    assert refused(lambda: shop.refund(1101, "c")) == "more-than-is-left"
    assert shop.refund(None, "c").amount_minor == 1100


@pytest.mark.parametrize("kind", KINDS)
def test_an_outcome_of_what_is_not_there_is_an_error(shop: RefundedOrder, kind: str) -> None:
    """Of another amount, an unknown refund, or an unknown order: it ends in the DLQ, and the refund does not change."""
    refund = shop.refund(1000, "a")
    errors = {"amount_minor": (999, PoisonMessage), "refund_id": ("rfd_" + "0" * 32, RowMissing)}
    errors |= {"order_id": ("ord_" + "0" * 32, RowMissing)}
    for name, (value, error) in errors.items():
        with pytest.raises(error):
            shop.outcome(refund.model_copy(update={name: value}), kind)
    assert (shop.refunds.of_order(shop.order_id), shop.left) == ([refund], 1500)


def test_the_outcome_of_an_order_that_keeps_changing_waits(
    shop: RefundedOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some tries SQS delivers it again."""
    refund = shop.refund(1000, "a")
    monkeypatch.setattr(OrderRefundStore, "store_outcome", lambda *_: False)
    assert shop.outcome(refund, "made", becomes=BackOff()) is False


# ---------------------------------------------------------------- what waits


@pytest.mark.parametrize("kind", KINDS)
def test_a_refund_that_has_an_outcome_waits_no_more(shop: RefundedOrder, kind: str) -> None:
    """One that waits is in the index and is kept; any other is in none and expires. Its order stays as it was."""
    shop.clear("waiting_shard")
    shop.set_status(OrderStatus.PAID, expires_at=7)
    index, refund = WaitingIndex(shop.client, shop.refunds_table, "requested_at"), shop.refund(100, "a")

    def kept() -> tuple[set[str], int]:
        listed = len(list(index.entries(until=NOW.timestamp())))
        return {"waiting_shard", "expires_at"} & shop.stored(refund).keys(), listed

    assert kept() == ({"waiting_shard"}, 1)
    shop.outcome(refund, kind)
    assert kept() == ({"expires_at"}, 0)
    assert (shop.item.get("waiting_shard"), shop.item["expires_at"]) == (None, 7)
