"""update_order: every outcome on every order, as one table; and what an order keeps of its outcomes."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from onecharge.contract.events import PaymentOutcomeEvent
from onecharge.contract.states import OrderStatus
from onecharge.orders.schema import StoredOrder, new_order_item
from onecharge.orders.store import ORDER_RETENTION_SECONDS, NoSuchOrder, OrderStore
from onecharge.orders.transitions import MOVES, applies
from onecharge.runtime.consumer import Done
from onecharge.runtime.dynamodb import from_item
from tests.shop.dynamodb import MemoryDynamoDB
from tests.support.harness import Log, Sample, create_table
from update_order.payment_outcomes import update_order

KINDS = {
    "succeeded": "PAID",
    "declined": "PAYMENT_DECLINED",
    "requires_action": "REQUIRES_ACTION",
    "canceled": "CANCELED",
}
OCCURRED_AT = datetime(2026, 11, 1, 9, 0, 2, tzinfo=UTC)
ORDERS = "orders"
AMOUNT_MINOR, ATTEMPT, REVISION = 3097, 2, 5
"""Of the order, and of the newest revision of the payment's row that it has seen."""


class Order:
    """One order, which is on its second attempt, and the events that reach it."""

    def __init__(self, sample: Sample, log: Log) -> None:
        client: Any = MemoryDynamoDB()
        self.dynamodb, self.orders = client, OrderStore(client, create_table(client, ORDERS, "OrdersTable"))
        self.sample, self.log, self.counted, self.revision = sample, log, Counter[str](), REVISION
        self.place()

    def place(self, status: str = "PENDING") -> None:
        """Store the order anew."""
        self.counted.clear()
        ordered = {"customer_id": "cus_1", "amount_minor": AMOUNT_MINOR, "currency": "EUR", "payment_method": "pm_2"}
        seen = {"attempt": ATTEMPT, "payment_revision": REVISION, "status": status}
        order_id = self.event("succeeded").subject
        self.placed = new_order_item(order_id, OCCURRED_AT, **ordered, **seen, fingerprint="f", correlation_id="c")
        self.dynamodb.put_item(TableName=ORDERS, Item=self.placed)

    def event(self, kind: str, **data: Any) -> PaymentOutcomeEvent:
        body = self.sample("update_order/payment_succeeded")["Records"][0]["body"]
        event = PaymentOutcomeEvent.model_validate_json(body.replace("succeeded", kind))
        reason = {"declined": "insufficient_funds", "canceled": "expired"}.get(kind)
        changes = {"attempt": ATTEMPT, "reason": reason, **data}
        return event.model_copy(update={"data": event.data.model_copy(update=changes)})

    def update(self, kind: str, **data: Any) -> None:
        """Deliver the outcome of the row's next revision, unless another is given."""
        self.revision += 1
        event = self.event(kind, **{"revision": self.revision, **data})
        done = update_order(
            event, orders=self.orders, logger=self.log.logger, count=lambda name: self.counted.update([name])
        )
        assert done == Done()

    @property
    def stored(self) -> Any:
        return self.dynamodb.get_item(TableName=ORDERS, Key={"order_id": self.placed["order_id"]})["Item"]

    @property
    def item(self) -> dict[str, Any]:
        return from_item(self.stored)


@pytest.fixture
def order(sample: Sample, log: Log) -> Order:
    return Order(sample, log)


# ---------------------------------------------------------------- every outcome on every order

MONEY: dict[str, dict[str, Any]] = {
    "its own": {},
    "another amount": {"amount_minor": 900},
    "another currency": {"currency": "USD"},
}


def moved_to(
    status: str, kind: str, *, attempt: int, revision: int, is_its_money: bool, is_refunded: bool
) -> str | None:
    """The status that the outcome gives the order; None if the order ignores it."""
    if status in ("PAID", "CANCELED"):
        return None
    if kind == "canceled":
        return "CANCELED"
    if kind == "succeeded":
        return "PAID" if is_its_money else "CANCELED" if is_refunded else None
    # A decline is not the end of a cancellation. What the order has already changes nothing.
    is_later = attempt > ATTEMPT or (attempt == ATTEMPT and status != KINDS[kind])
    return KINDS[kind] if is_its_money and status != "CANCELING" and revision > REVISION and is_later else None


@pytest.mark.parametrize("money", MONEY)
@pytest.mark.parametrize("kind", KINDS)
def test_every_outcome_on_every_order(order: Order, kind: str, money: str) -> None:
    """Each status, attempt, revision and refund: the status then, what else is written, and the alarms."""
    paid, is_its_money = MONEY[money].get("amount_minor", AMOUNT_MINOR), not MONEY[money]
    refunds_made = (0, paid - 1, paid) if kind == "succeeded" else (None,)
    for status, attempt, revision, refunded in product(OrderStatus, (1, 2, 3), (4, 5, 6), refunds_made):
        case = (status, attempt, revision, refunded)
        of_row = {"attempt": attempt, "revision": revision}
        is_refunded = refunded == paid
        target = moved_to(status, kind, **of_row, is_its_money=is_its_money, is_refunded=is_refunded)
        order.place(status)
        order.update(kind, **of_row, **MONEY[money], amount_refunded_minor=refunded, payment_method=f"pm_{attempt}")
        assert order.item["status"] == (target or status), case
        assert order.counted[f"Order.{target}"] == (target is not None), case
        if is_its_money and revision > REVISION:  # As `explain` foresees it.
            foreseen = applies(MOVES[order.event(kind).type], StoredOrder.from_item(order.placed), attempt)
            assert foreseen == (target is not None), case
        # Stripe's facts are written to an order that stays as it is, too.
        has_facts = kind == "succeeded" and is_its_money and (target is not None or revision > REVISION)
        assert ("stripe_refunded_minor" in order.item) == has_facts, case
        assert target or has_facts or order.stored == order.placed, case
        # A restored order takes over a later attempt.
        now = attempt if target == KINDS[kind] and kind in ("declined", "requires_action") else ATTEMPT
        assert (order.item["attempt"], order.item["payment_method"]) == (now, f"pm_{now}"), case
        is_wrong = not is_its_money or (kind == "succeeded" and status == "CANCELED")
        assert order.counted["Alarm"] == (is_wrong and kind != "canceled" and not is_refunded), case


# ---------------------------------------------------------------- what an order keeps


@pytest.mark.parametrize("reason", ["expired", "not_chargeable", None])
def test_an_outcome_is_stored(order: Order, reason: str | None) -> None:
    """A decline with Stripe's code, a success with the attempt that has paid, and when; late, and of any attempt. A
    cancellation with its reason, None if a person canceled; what became of its attempts stays as it was."""
    order.update("requires_action")
    assert order.item["outcomes"] == {"2": {"status": "REQUIRES_ACTION"}}
    order.update("canceled", reason=reason)
    assert (order.item.get("cancel_reason"), order.item["outcomes"]) == (reason, {"2": {"status": "REQUIRES_ACTION"}})
    order.place()
    order.update("declined")
    order.update("succeeded", attempt=1)
    declined = {"status": "PAYMENT_DECLINED", "decline_code": "insufficient_funds"}
    assert order.item["outcomes"] == {"1": {"status": "PAID"}, "2": declined}
    assert (order.item["paid_attempt"], order.item["paid_at"]) == (1, OCCURRED_AT.isoformat())


@pytest.mark.parametrize(("status", "money"), [("PENDING", {"amount_minor": 1}), ("CANCELED", {})])
def test_an_alarm_names_the_payment(order: Order, log: Log, status: str, money: dict[str, Any]) -> None:
    """Of an order that was priced again, or that was charged though it is CANCELED: a person refunds it at Stripe."""
    order.place(status)
    order.update("succeeded", **money)
    [line] = [line for line in log.lines if line["level"] == "ERROR"]
    amounts = (line["amount_minor"], line["order_amount_minor"])
    assert amounts == (money.get("amount_minor", AMOUNT_MINOR), AMOUNT_MINOR)
    assert (line["order_id"], line["payment_intent_id"]) == (order.item["order_id"], "pi_sample1")
    assert (line["cause"], "refund it at Stripe" in line["message"]) == ("MoneyDiffers", True)


def test_an_outcome_says_since_when_an_order_waits_or_when_it_expires(order: Order) -> None:
    """Both since the outcome, not since it arrived: a late one is overdue the earlier, and the order outlives the
    payment's row. Any outcome after which nothing waits leaves the time since which the order waited."""
    waited = OCCURRED_AT
    for hours, kind in enumerate(("declined", "requires_action", "canceled", "succeeded"), start=1):
        at = OCCURRED_AT + timedelta(hours=hours)
        if kind == "succeeded":
            order.place()
            waited = OCCURRED_AT
        order.update(kind, occurred_at=at)
        waited = at if kind == "requires_action" else waited
        assert datetime.fromisoformat(order.item["waiting_since"]) == waited, kind
        expires_at = None if kind == "requires_action" else int(at.timestamp()) + ORDER_RETENTION_SECONDS
        assert order.item.get("expires_at") == expires_at, kind


@pytest.mark.parametrize("data", [{}, {"amount_refunded_minor": 1, "dispute_status": "lost"}], ids=str)
def test_an_unknown_order_is_an_error(order: Order, data: dict[str, Any]) -> None:
    """The message is retried and ends in the DLQ; no order is created."""
    key = {"order_id": order.placed["order_id"]}
    order.dynamodb.delete_item(TableName=ORDERS, Key=key)
    with pytest.raises(NoSuchOrder):
        order.update("succeeded", **data)
    assert "Item" not in order.dynamodb.get_item(TableName=ORDERS, Key=key)
