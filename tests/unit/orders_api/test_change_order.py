"""POST /orders/{order_id}/payments, /cancel and /refunds: each in every status of the order, and once for each key."""

from datetime import timedelta
from functools import partialmethod
from typing import Any

import pytest

from onecharge.contract.states import OrderStatus
from onecharge.orders.refund_store import OrderRefundStore
from onecharge.orders.store import OrderStore
from tests.support.orders_api import NOW, Answer, Client

MOVES: dict[str, dict[OrderStatus, tuple[int, str]]] = {
    "pay_again": dict.fromkeys(OrderStatus, (409, "not-declined")) | {OrderStatus.PAYMENT_DECLINED: (202, "")},
    "refund_order": dict.fromkeys(OrderStatus, (409, "not-paid")) | {OrderStatus.PAID: (202, "")},
    "cancel_order": dict.fromkeys(OrderStatus, (202, ""))
    | {OrderStatus.PAID: (409, "already-paid"), OrderStatus.CANCELED: (200, "")},
}
BECOMES = {"pay_again": "PENDING", "cancel_order": "CANCELING", "refund_order": "PAID"}


@pytest.mark.parametrize(
    ("name", "status", "answer"), [(name, *each) for name, table in MOVES.items() for each in table.items()]
)
def test_an_order_is_changed_in_these_statuses_alone(
    client: Client, name: str, status: OrderStatus, answer: tuple[int, str]
) -> None:
    """Any other request changes nothing, and says which status forbids it. What waits does not expire."""
    order_id = client.placed(status, expires_at=1, waiting_since="2026-01-01T00:00:00+00:00")
    before = client.stored()
    answered = client.ask(name, order_id, key="key-2")
    assert answered.in_brief == answer
    [item] = client.stored()
    has_ended = name == "cancel_order" and status in (OrderStatus.CANCELING, OrderStatus.CANCELED)
    if answer[0] == 409 or has_ended:
        assert [item] == before
        assert has_ended or status in answered.body["detail"] or answer[1] == "already-paid"
        return
    assert item["status"]["S"] == BECOMES[name]
    if name != "refund_order":
        assert item["waiting_since"]["S"] == NOW.isoformat()
        assert item.keys() & {"waiting_shard", "expires_at"} == {"waiting_shard"}
    if name == "pay_again":
        assert (item["attempt"]["N"], item["payment_method"]["S"]) == ("2", "pm_card_mastercard")
    if name == "cancel_order":
        assert item["cancel_requested_at"]["S"] == NOW.isoformat()
        assert answered.body["status"] == "CANCELING"


def test_a_change_that_was_not_stored_is_not_accepted(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refund that always meets another one is 503: its retry is safe; of no order it is 404. A cancellation that is
    refused for another reason than the status is no 202."""
    assert client.ask("refund_order").in_brief == (404, "not-found")
    order_id, move = client.placed("PAID"), OrderStore.move
    monkeypatch.setattr(OrderRefundStore, "store", lambda *_: False)
    assert client.ask("refund_order", order_id).in_brief == (503, "try-again")
    client.set(order_id, status="PENDING")
    a_rule_to_come = partialmethod(move, conditions=["attribute_exists(a_rule_to_come)"])
    monkeypatch.setattr(OrderStore, "move", a_rule_to_come)
    assert client.ask("cancel_order", order_id).in_brief == (500, "internal")


# ---------------------------------------------------------------- another attempt


def declined_with(client: Client, order_id: str, payment_method: str, key: str) -> Answer:
    """Pay again with this card, which is declined, too; returns the response."""
    answer = client.ask("pay_again", order_id, {"payment_method": payment_method}, key=key)
    client.set(order_id, status="PAYMENT_DECLINED")
    return answer


@pytest.mark.parametrize("status", OrderStatus)
def test_a_used_key_with_another_card_is_refused(client: Client, status: str) -> None:
    """422 with every status, and nothing changes; the key that placed the order is used, too. Card A (key KA) declined,
    card B (KB) declined: a late retry of KA is replayed and charges nothing."""
    order_id = client.placed("PAYMENT_DECLINED")
    first = declined_with(client, order_id, "pm_A", "KA")
    assert declined_with(client, order_id, "pm_B", "KB").status == 202
    client.set(order_id, status=status)
    before = client.stored()
    for key in ("KA", "key-0"):
        answer = client.ask("pay_again", order_id, {"payment_method": "pm_C"}, key=key)
        assert answer.in_brief == (422, "idempotency-key-reused")
    replayed = client.ask("pay_again", order_id, {"payment_method": "pm_A"}, key="KA")
    assert (replayed[:2], replayed.headers["Idempotent-Replayed"]) == (first[:2], "true")
    assert client.stored() == before


def test_an_order_has_a_limit_of_attempts(client: Client) -> None:
    """409 that says why, and nothing changes: attempt 9. Until then the same card may be tried again."""
    order_id = client.placed("PAYMENT_DECLINED", attempt=7)
    assert declined_with(client, order_id, "pm_A", "KA").status == 202
    before = client.stored()
    assert declined_with(client, order_id, "pm_A", "KB").in_brief == (409, "attempts-exhausted")
    assert client.stored() == before


# ---------------------------------------------------------------- refunds


def refund(client: Client, order_id: str, amount: int | None = None, key: str = "key-1", **more: Any) -> Answer:
    return client.ask("refund_order", order_id, {**more, **({} if amount is None else {"amount": amount})}, key=key)


def amounts(shown: dict[str, Any]) -> int:
    """The sum of the order's refunds, which all wait."""
    return sum(each["amount"] for each in shown["refunds"])


def test_a_part_of_a_paid_order_is_refunded(client: Client) -> None:
    """202 with the refund; from then on the order shows it. It names the attempt that paid, which may be an earlier
    one, keeps for the staff who wanted it and why, and does not expire while it waits. A retry gets the same response,
    whatever the refund's status is by now."""
    order_id = client.placed("PAID", attempt=2, paid_attempt=1)
    answer = refund(client, order_id, 1000, reason="a cup was broken")
    assert (answer.status, answer.headers["Location"]) == (202, f"/orders/{order_id}")
    shown = client.shown(order_id)
    assert shown["refunds"] == [answer.body]
    assert (answer.body["status"], answer.body["amount"]) == ("PENDING", 1000)
    assert "broken" not in str([answer, shown])
    [item] = client.dynamodb.scan(TableName="refunds")["Items"]
    assert (item["refund_id"]["S"], item["attempt"]["N"]) == (answer.body["refund_id"], "1")
    assert (item["requested_by"]["S"], item["reason"]["S"]) == ("cus_1", "a cup was broken")
    assert "expires_at" not in item
    client.dynamodb.put_item(TableName="refunds", Item={**item, "status": {"S": "FAILED"}})
    assert refund(client, order_id, 1000, reason="a cup was broken").body == answer.body


ACCEPTED, TOO_MUCH = (202, ""), (409, "more-than-is-left")


@pytest.mark.parametrize(
    ("waits", "stripe_refunded", "amount", "answer"),
    [
        (0, 0, 2500, ACCEPTED),
        (0, 0, None, ACCEPTED),
        (0, 0, 2501, TOO_MUCH),
        (1000, 0, 1501, TOO_MUCH),
        (1000, 700, None, ACCEPTED),
        (1000, 700, 801, TOO_MUCH),
        (1000, 1500, None, TOO_MUCH),
    ],
)
def test_no_more_is_refunded_than_was_paid(
    client: Client, waits: int, stripe_refunded: int, amount: int | None, answer: tuple[int, str]
) -> None:
    """What waits counts, and so do refunds by hand. Without an amount it is all that is left; with a refund that is
    refused nothing is reserved. A used key with another amount is refused, too."""
    order_id = client.placed("PAID")
    if waits:
        refund(client, order_id, waits, "waits")
    client.set(order_id, stripe_refunded_minor=stripe_refunded)
    answered = refund(client, order_id, amount, "this")
    assert answered.in_brief == answer
    left = 2500 - waits - stripe_refunded
    assert answered.body.get("amount") == ((amount or left) if answer == ACCEPTED else None)
    before = client.stored()
    if answer == ACCEPTED:
        assert refund(client, order_id, 1 if amount else left, "this").in_brief == (422, "idempotency-key-reused")
    assert client.stored() == before
    shown = client.shown(order_id)
    waiting = 2500 - stripe_refunded if answer == ACCEPTED else waits
    assert (shown["amount_refunded"], amounts(shown)) == (stripe_refunded, waiting)


DISPUTED, TOO_LATE = (409, "disputed"), (409, "paid-too-long-ago")
PAID_LATER = {"paid_at": (NOW + timedelta(days=3)).isoformat()}
OPEN = ("needs_response", "under_review", "lost", "appeal_needs_response", "prevented", "of next year")
OVER = ("warning_needs_response", "warning_under_review", "warning_closed", "won")


@pytest.mark.parametrize(
    ("facts", "days", "answer"),
    [
        *(({"dispute_status": each}, 0, DISPUTED) for each in OPEN),
        *(({"dispute_status": each}, 0, ACCEPTED) for each in OVER),
        (PAID_LATER, 428, TOO_LATE),
        (PAID_LATER, 427.99, ACCEPTED),
        ({"paid_attempt": 1}, 425, TOO_LATE),
        ({"currency": "KWD"}, 0, (400, "invalid-request")),
    ],
    ids=str,
)
def test_what_cannot_be_refunded_is_refused(
    client: Client, facts: dict[str, Any], days: float, answer: tuple[int, str]
) -> None:
    """While a dispute is open, and once it is lost (an inquiry takes no money); from day 425 after the payment, before
    it is forgotten, however late it was; and with three decimals unless it ends with 0. A retry of an accepted one is
    replayed all the same, with the same response."""
    order_id = client.placed("PAID")
    accepted = refund(client, order_id, 10, "before")
    client.set(order_id, **facts)
    client.now += timedelta(days=days)
    assert refund(client, order_id, 10, "before")[:2] == accepted[:2] == (202, accepted.body)
    assert refund(client, order_id, 15, "after").in_brief == answer
    assert amounts(client.shown(order_id)) == (25 if answer == ACCEPTED else 10)
