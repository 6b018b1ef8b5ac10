"""`audit`: what Stripe shows against the tables; whatever is tampered with is found, to the cent."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onecharge.orders.schema import StoredOrder
from onecharge.payments.refund_rules import StripeRefund
from ops.audit import Charge, compare, compare_refunds, day
from ops.errors import Problem
from tests.shop.builders import SHOP
from tests.support.operated_stack import OperatedStack

ORDER_ID = "ord_" + "a" * 32
REFUND_ID = "rfd_" + "b" * 32
DAY = timedelta(days=1)
REQUESTED_AT = "2026-11-20T12:00:00+00:00"

# ---------------------------------------------------------------- the rules

CHARGE: dict[str, Any] = {
    "charge_id": "ch_1",
    "payment_intent_id": "pi_1",
    "order_id": ORDER_ID,
    "amount_minor": 2500,
    "currency": "EUR",
}
ROW = {"state": "SUCCEEDED", "payment_intent_id": "pi_1", "amount_minor": 2500, "currency": "EUR"}
ORDER = {"status": "PAID", "amount_minor": 2500, "currency": "EUR"}
RETURNED = {"refunded_minor": 2500}, {"amount_refunded_minor": 2500}, {"status": "CANCELED"}


@pytest.mark.parametrize(
    ("charge", "row", "order", "whys"),
    [
        ({}, {}, {}, []),
        ({}, {"amount_minor": 2499}, {}, ["the row has another amount or currency"]),
        ({}, {"currency": "USD"}, {}, ["the row has another amount or currency"]),
        ({}, {"state": "DECLINED"}, {}, ["the row is DECLINED"]),
        ({"order_id": None}, {}, {}, ["the charge's metadata do not name the order"]),
        ({"refunded_minor": 500}, {"amount_refunded_minor": 500}, {}, []),
        ({"refunded_minor": 500}, {}, {}, ["the row has 0.00 EUR refunded, Stripe 5.00 EUR"]),
        ({}, {"amount_refunded_minor": 500}, {}, ["the row has 5.00 EUR refunded, Stripe 0.00 EUR"]),
        ({"is_disputed": True}, {}, {}, ["the row has no dispute"]),
        ({"is_disputed": True}, {"dispute_status": "won"}, {}, []),
        ({}, {}, {"status": "PAYMENT_DECLINED"}, ["the order is PAYMENT_DECLINED"]),
        ({}, {}, {"status": "CANCELED"}, ["the order is CANCELED"]),
        (*RETURNED, []),
        ({"is_disputed": True}, {"dispute_status": "lost"}, {"status": "CANCELED"}, []),
        ({}, {}, {"amount_minor": 1}, ["the order has another amount or currency"]),
        ({}, {}, {"currency": "USD"}, ["the order has another amount or currency"]),
        ({}, {}, None, ["the order is lost"]),
        ({}, None, {}, ["the order's payment is lost: charged twice, or by hand?"]),
        (
            {},
            {"payment_intent_id": "pi_2"},
            {},
            [
                "the order's payment is pi_2, SUCCEEDED: charged twice, or by hand?",
                "the row is SUCCEEDED, and Stripe shows no such charge",
            ],
        ),
        (None, {}, {}, ["the row is SUCCEEDED, and Stripe shows no such charge"]),
        (None, {"payment_intent_id": None}, {}, ["the row is SUCCEEDED, and Stripe shows no such charge"]),
        (None, {"state": "PENDING"}, {}, ["the order is PAID, and its payment PENDING"]),
        (None, None, {}, ["the order is PAID, and its payment no row"]),
        (None, {"state": "DECLINED"}, {"status": "PAYMENT_DECLINED"}, []),
    ],
    ids=str,
)
def test_each_side_is_compared_with_the_others(
    charge: dict[str, Any] | None, row: dict[str, Any] | None, order: dict[str, Any] | None, whys: list[str]
) -> None:
    """A charge, its payment's row and its order, each as it should be but for these changes; None: it is lost."""
    charges = [] if charge is None else [Charge(**(CHARGE | charge))]
    stored = [None if changes is None else usual | changes for usual, changes in ((ROW, row), (ORDER, order))]
    assert [each.why for each in compare(ORDER_ID, charges, *stored)] == whys


def test_two_charges_of_one_order_are_found() -> None:
    """The one that the row names, and another."""
    charges = [Charge(**CHARGE), Charge(**CHARGE | {"charge_id": "ch_2", "payment_intent_id": "pi_2"})]
    [second] = compare(ORDER_ID, charges, ROW, ORDER)
    assert (second.stripe_id, second.at_stripe) == ("ch_2", "25.00 EUR")
    assert second.why == "the order's payment is pi_1, SUCCEEDED: charged twice, or by hand?"


MADE = StripeRefund("re_1", "succeeded", 500, "EUR", REFUND_ID)
PENDING = StripeRefund("re_1", "pending", 500, "EUR", REFUND_ID)
FAILED = StripeRefund("re_2", "failed", 500, "EUR", REFUND_ID)
BY_HAND = StripeRefund("re_3", "succeeded", 700, "EUR")
ITEM = {"refund_id": REFUND_ID, "amount_minor": 500, "currency": "EUR", "status": "SUCCEEDED"}


@pytest.mark.parametrize(
    ("item", "made", "why"),
    [
        ({}, [MADE], None),
        ({}, [PENDING, BY_HAND], None),
        (None, [BY_HAND], None),
        ({"status": "PENDING"}, [], None),
        ({"status": "FAILED"}, [], None),
        ({"status": "FAILED", "stripe_refund_id": "re_2"}, [FAILED], None),
        ({"status": "FAILED", "stripe_refund_id": "re_2"}, [], "Stripe has no such refund"),
        ({}, [], "Stripe has no such refund"),
        ({}, [BY_HAND], "Stripe has no such refund"),
        ({}, [FAILED], "it is SUCCEEDED, at Stripe failed"),
        ({"status": "FAILED"}, [MADE], "it is FAILED, at Stripe succeeded"),
        ({"status": "PENDING"}, [MADE], "it is PENDING, at Stripe succeeded"),
        ({"amount_minor": 501}, [MADE], "another amount or currency"),
        ({"currency": "USD"}, [MADE], "another amount or currency"),
        (None, [MADE], "OrderRefunds has no such refund"),
        ({}, [MADE, MADE], "refunded twice, or by hand?"),
        ({}, [FAILED, MADE], None),
    ],
    ids=str,
)
def test_an_own_refund_is_compared_with_its_item(
    item: dict[str, Any] | None, made: list[StripeRefund], why: str | None
) -> None:
    """All of a PaymentIntent's refunds, and the order's item in OrderRefunds; None: it is lost."""
    found = [each.why for each in compare_refunds(ORDER_ID, [] if item is None else [ITEM | item], made)]
    assert found == ([] if why is None else [f"{REFUND_ID}: {why}"])


# ---------------------------------------------------------------- both sides are read


def audit(shop: OperatedStack, since: int = -1, until: int = 1) -> dict[str, Any]:
    """From yesterday until tomorrow, so that no test depends on the hour that it runs in."""
    days = [f"{datetime.now(UTC) + offset * DAY:%Y-%m-%d}" for offset in (since, until)]
    status, document, text = shop.ops("audit", "--from", days[0], "--until", days[1])
    assert status == bool(document["differences"])
    assert ("Stripe and the tables agree" in text) == (status == 0)
    return document


def whys(document: dict[str, Any]) -> list[str]:
    return [each["why"] for each in document["differences"]]


def pay_by_hand(operated: OperatedStack, **metadata: str) -> str:
    """A charge of the same account that this application has not made."""
    return operated.intent("", amount=2500, confirm="pm_card_visa", metadata=metadata)


def refund(shop: OperatedStack, order: StoredOrder, amount: int, **metadata: str) -> str:
    intent = str(shop.payment(order.order_id).payment_intent_id)
    parameters: Any = {"payment_intent": intent, "amount": amount, "metadata": metadata}
    return shop.stack.stripe.v1.refunds.create(parameters).id


def test_what_was_charged_agrees(operated: OperatedStack) -> None:
    """Each currency is summed by itself."""
    for currency in ("EUR", "EUR", "USD"):
        operated.pay(currency=currency)
    document = audit(operated)
    assert (document["differences"], document["charged_minor"]) == ([], {"EUR": 5000, "USD": 2500})
    assert audit(operated, -9, -8)["charged_minor"] == {}


def test_charges_of_others_are_no_difference(operated: OperatedStack) -> None:
    """They name no order, or another shop's; nor are their refunds."""
    of_another = {"order_id": ORDER_ID, "shop": "another"}
    intents = [pay_by_hand(operated), pay_by_hand(operated, order_id="4711"), pay_by_hand(operated, **of_another)]
    given: Any = {"payment_intent": intents[-1], "metadata": {"order_id": ORDER_ID, "refund_id": REFUND_ID}}
    operated.stack.stripe.v1.refunds.create(given)
    document = audit(operated)
    assert (document["differences"], document["others"]) == ([], 4)


def test_a_second_charge_is_found_with_the_command_that_explains_it(operated: OperatedStack) -> None:
    """It was made by hand, with the order's id. So is a charge whose row is lost, and one of another currency."""
    order = operated.pay()
    pay_by_hand(operated, order_id=order.order_id, shop=SHOP)
    [difference] = audit(operated)["differences"]
    assert difference["why"].endswith("charged twice, or by hand?")
    assert difference["command"] == f".venv/bin/python -m ops explain {order.order_id}"
    operated.set_payment(order.order_id, currency="USD")
    assert "the row has another amount or currency" in whys(audit(operated))
    operated.delete("PaymentsTable", order_id=order.order_id)
    assert whys(audit(operated)) == ["the order's payment is lost: charged twice, or by hand?"] * 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"payment_intent_id": "pi_unknown"}, "the row is SUCCEEDED, and Stripe shows no such charge"),
        ({"state": "PENDING"}, "the order is PAID, and its payment PENDING"),
    ],
)
def test_what_the_tables_alone_have_is_found(operated: OperatedStack, changes: dict[str, Any], why: str) -> None:
    """The charge was made a week ago; the row, or the order, says that it was made now."""
    with operated.hours_ago(7 * 24):
        order = operated.pay()
    now = datetime.now(UTC)
    operated.set_payment(order.order_id, finalized_at=int(now.timestamp()), **changes)
    operated.set_order(order.order_id, paid_at=now.isoformat())
    assert whys(audit(operated)) == [why]


def test_midnight_is_no_difference(operated: OperatedStack) -> None:
    """Stripe has booked the charge days before the row was written: both are looked at as they are now."""
    with operated.hours_ago(7 * 24):
        order = operated.pay()
    operated.set_payment(order.order_id, finalized_at=int(datetime.now(UTC).timestamp()))
    assert audit(operated)["differences"] == []
    operated.set_payment(order.order_id, amount_minor=2499)
    assert whys(audit(operated)) == ["the row has another amount or currency"]


def lost(shop: OperatedStack, order: StoredOrder) -> None:
    shop.delete("OrderRefundsTable", order_id=order.order_id, refund_id=REFUND_ID)


def unknown_at_stripe(shop: OperatedStack, order: StoredOrder) -> None:
    shop.put("OrderRefundsTable", **ITEM | {"order_id": order.order_id, "refund_id": "rfd_" + "c" * 32})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lost, f"{REFUND_ID}: OrderRefunds has no such refund"),
        (unknown_at_stripe, f"rfd_{'c' * 32}: Stripe has no such refund"),
    ],
)
def test_a_refund_of_an_old_charge_is_compared(
    operated: OperatedStack, change: Callable[[OperatedStack, StoredOrder], None], why: str
) -> None:
    """Stripe's refund leads to the charge of another day, and that to its row."""
    with operated.hours_ago(7 * 24):
        order = operated.pay()
    refund(operated, order, 500, refund_id=REFUND_ID)
    operated.put("OrderRefundsTable", **ITEM | {"order_id": order.order_id, "requested_at": REQUESTED_AT})
    assert whys(audit(operated)) == ["the row has 0.00 EUR refunded, Stripe 5.00 EUR"]
    operated.set_payment(order.order_id, amount_refunded_minor=500)
    assert whys(audit(operated)) == []
    change(operated, order)
    assert whys(audit(operated)) == [why]


def test_a_refund_that_stripe_does_not_have_leads_to_its_order(operated: OperatedStack) -> None:
    """Nothing moved at Stripe: the item was requested now."""
    with operated.hours_ago(7 * 24):
        order = operated.pay()
    operated.put(
        "OrderRefundsTable", **ITEM | {"order_id": order.order_id, "requested_at": datetime.now(UTC).isoformat()}
    )
    assert whys(audit(operated)) == [f"{REFUND_ID}: Stripe has no such refund"]


def test_a_dispute_of_an_old_charge_is_compared(operated: OperatedStack) -> None:
    """It has no metadata: its charge has."""
    with operated.hours_ago(7 * 24):
        order = operated.pay()
    operated.standin.open_dispute(str(operated.payment(order.order_id).payment_intent_id))
    assert whys(audit(operated)) == ["the row has no dispute"]
    operated.set_payment(order.order_id, dispute_status="needs_response")
    assert whys(audit(operated)) == []


def test_the_days_are_named(operated: OperatedStack) -> None:
    """`yesterday`, one day, or several; nothing else."""
    assert day("yesterday") == day(f"{datetime.now(UTC) - DAY:%Y-%m-%d}")
    with operated.hours_ago(24):
        operated.pay()
    for words in (("yesterday",), ("--from", "yesterday"), ("--from", "2026-01-01", "--until", "yesterday")):
        assert operated.ops("audit", *words)[1]["charged_minor"] == {"EUR": 2500}
    for wrong in ([], ["--from", "2026-11-02", "--until", "2026-11-01"]):
        with pytest.raises(Problem):
            operated.ops("audit", *wrong)
    with pytest.raises(SystemExit):
        operated.ops("audit", "today or so")
