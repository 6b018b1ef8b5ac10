"""`audit`: what Stripe shows against the tables, by explain's findings; whatever is tampered with is found."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from ops import audit, facts
from ops.audit import day
from ops.output import Problem
from tests.support.operated_stack import FINAL, OperatedStack

ORDER_ID, REFUND_ID = "ord_" + "a" * 32, "rfd_" + "b" * 32
DAY = timedelta(days=1)


def audited(shop: OperatedStack, since: int = -1, until: int = 1) -> dict[str, Any]:
    """From yesterday until tomorrow, so that no test depends on the hour that it runs in."""
    days = [f"{datetime.now(UTC) + offset * DAY:%Y-%m-%d}" for offset in (since, until)]
    status, document, _ = shop.ops("audit", *days)
    assert status == bool(document["differences"])
    return document


def whys(shop: OperatedStack) -> list[str]:
    return [each["why"] for each in audited(shop)["differences"]]


def test_what_was_charged_agrees(operated: OperatedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each currency. Orders that are plainly equal are not asked about one by one."""
    for currency in ("EUR", "EUR", "USD"):
        operated.pay(currency=currency)
    document = audited(operated)
    assert (document["differences"], document["orders"]) == ([], 3)
    monkeypatch.setattr(facts, "_intent_facts", lambda *_: pytest.fail("Stripe was asked"))
    assert audited(operated)["differences"] == []
    assert audited(operated, -9, -8)["orders"] == 0


def test_charges_of_others_are_no_difference(operated: OperatedStack) -> None:
    """They name no order, or another shop's; nor are their refunds."""
    names: tuple[dict[str, str], ...] = ({}, {"order_id": "4711"}, {"order_id": ORDER_ID, "shop": "another"})
    intents = [operated.intent("", confirm="pm_card_visa", metadata=each) for each in names]
    given: Any = {"payment_intent": intents[-1], "metadata": {"order_id": ORDER_ID, "refund_id": REFUND_ID}}
    operated.stack.stripe.v1.refunds.create(given)
    document = audited(operated)
    assert (document["differences"], document["orders"]) == ([], 0)


def intent_of(shop: OperatedStack, order_id: str) -> str:
    return str(shop.payment(order_id).payment_intent_id)


def refund_unknown_here(shop: OperatedStack, order_id: str) -> None:
    shop.refund(order_id, 500, refund_id=REFUND_ID)
    shop.set_payment(order_id, amount_refunded_minor=500)


def refund_of_another_currency(shop: OperatedStack, order_id: str) -> None:
    shop.put_refund(order_id, refund_id=REFUND_ID, status="SUCCEEDED", currency="USD")
    refund_unknown_here(shop, order_id)


def another_currency(shop: OperatedStack, order_id: str) -> None:
    """Than the charge's, in both services."""
    shop.set_payment(order_id, currency="USD")
    shop.set_order(order_id, currency="USD")


TAMPERED: list[tuple[Callable[[OperatedStack, str], Any], str]] = [
    (lambda shop, id_: shop.set_payment(id_, amount_minor=2499), "are not the row's"),
    (lambda shop, id_: shop.set_payment(id_, currency="USD"), "are not the row's"),
    (another_currency, "are not the row's"),
    (lambda shop, id_: shop.set_payment(id_, amount_refunded_minor=500), "its refunds or its dispute changed"),
    (lambda shop, id_: shop.set_payment(id_, payment_intent_id="pi_unknown"), "does not have the row's pi_unknown"),
    (lambda shop, id_: shop.set_payment(id_, state="PENDING", **FINAL), "the row becomes SUCCEEDED"),
    (lambda shop, id_: shop.set_order(id_, amount_minor=2499), "priced again"),
    (lambda shop, id_: shop.set_order(id_, currency="USD"), "priced again"),
    (lambda shop, id_: shop.set_order(id_, status="PAYMENT_DECLINED"), "the order does not have it yet"),
    (lambda shop, id_: shop.set_order(id_, status="CANCELED"), "the order is CANCELED, and was charged"),
    (lambda shop, id_: shop.intent(id_, confirm="pm_card_visa"), "names another PaymentIntent"),
    (lambda shop, id_: shop.delete("PaymentsTable", order_id=id_), ""),
    (lambda shop, id_: shop.delete("OrdersTable", order_id=id_), "there is a payment, and no order"),
    (lambda shop, id_: shop.standin.open_dispute(intent_of(shop, id_)), "the charge is disputed"),
    (lambda shop, id_: shop.refund(id_, 500), "its refunds or its dispute changed"),
    (refund_unknown_here, "OrderRefunds has not"),
    (lambda shop, id_: shop.put_refund(id_, refund_id=REFUND_ID, status="SUCCEEDED"), "Stripe has no such refund"),
    (refund_of_another_currency, "of 5.00 EUR"),
]


@pytest.mark.parametrize("days_ago", [0, 7])
@pytest.mark.parametrize(
    ("change", "why"), TAMPERED, ids=[f"{number} {each[1]}" for number, each in enumerate(TAMPERED)]
)
def test_whatever_is_tampered_with_is_found(
    operated: OperatedStack, change: Callable[[OperatedStack, str], Any], why: str, days_ago: int
) -> None:
    """Of a charge of today, or of a week ago whose row and order say it was made now: midnight is no difference."""
    with operated.hours_ago(24 * days_ago):
        order_id = operated.pay().order_id
    now = datetime.now(UTC)
    operated.set_payment(order_id, finalized_at=int(now.timestamp()))
    operated.set_order(order_id, paid_at=now.isoformat())
    assert whys(operated) == []
    change(operated, order_id)
    differences = audited(operated)["differences"]
    assert [each for each in differences if why in each["why"]] != [], differences
    assert {each["next"] for each in differences} == {f".venv/bin/python -m ops explain {order_id}"}


def test_a_dispute_of_a_later_day_is_compared(operated: OperatedStack) -> None:
    """Of the audited day there is the charge alone."""
    with operated.hours_ago(24):
        order_id = operated.pay().order_id
    assert operated.ops("audit", "yesterday")[0] == 0
    operated.standin.open_dispute(intent_of(operated, order_id))
    assert operated.ops("audit", "yesterday")[0] == 1


def test_an_item_that_cannot_be_read_hides_no_other_difference(operated: OperatedStack) -> None:
    """It is one itself."""
    broken, twice = operated.pay().order_id, operated.pay().order_id
    operated.put_refund(broken, refund_id=REFUND_ID, amount_minor=0)
    operated.intent(twice, confirm="pm_card_visa")
    found = {each["order_id"]: each["why"] for each in audited(operated)["differences"]}
    assert found.keys() == {broken, twice}
    assert "cannot be read" in found[broken]


def test_a_charge_that_was_made_by_hand_is_found(operated: OperatedStack) -> None:
    """It has no PaymentIntent, and names an order."""
    order_id = operated.pay().order_id
    charge = Mock(id="ch_1", payment_intent=None)
    assert "made by hand" in next(audit._why(operated.stack, order_id, [charge]))


def test_the_days_are_named(operated: OperatedStack, capsys: pytest.CaptureFixture[str]) -> None:
    """`yesterday`, one day, or several; the command's own usage says so of anything else."""
    assert day("yesterday") == day(f"{datetime.now(UTC) - DAY:%Y-%m-%d}")
    with operated.hours_ago(24):
        operated.pay()
    for words in (("yesterday",), ("2026-01-01", "yesterday")):
        assert operated.ops("audit", *words)[1]["orders"] == 1
    assert ["not over" in audited(operated, -1, until)["days"] for until in (-1, 0)] == [False, True]
    with pytest.raises(Problem):
        operated.ops("audit", "2026-11-02", "2026-11-01")
    with pytest.raises(SystemExit):
        operated.ops("audit", "today or so")
    assert "yesterday|YYYY-MM-DD" in capsys.readouterr().err
