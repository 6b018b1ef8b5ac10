"""`audit` of refunds that were requested here: each against the payment service's row."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from local.stripe_standin.server import running_standin
from onecharge.contract.refunds import RefundRequested, RefundRequestedEvent
from onecharge.orders.schema import StoredOrder
from onecharge.payments.refunds.gateway import StripeRefunds
from onecharge.payments.refunds.store import RefundStore
from onecharge.runtime.dynamodb import to_item
from refund_charge.refund import refund_charge
from testing.dlq_stack import DlqStack
from testing.tools import refund_tools

REFUND_ID = "rfd_" + "b" * 32


@pytest.fixture(scope="module")
def stripe_base() -> Iterator[str]:
    with running_standin() as standin:
        yield standin.base_url


@pytest.fixture
def shop(aws: None, stripe_base: str) -> DlqStack:
    made = DlqStack(stripe_base)
    made.standin.reset()
    return made


def refund(shop: DlqStack, order: StoredOrder, amount_minor: int = 500) -> str:
    """refund_charge makes the refund; returns its id at Stripe."""
    store = RefundStore(shop.dynamodb, shop.stack.resource("RefundsTable"))
    tools = refund_tools(store, StripeRefunds(shop.stack.stripe), shop.tools().instruments)
    requested = RefundRequested(
        order_id=order.order_id,
        attempt=1,
        refund_id=REFUND_ID,
        amount_minor=amount_minor,
        currency="EUR",
        requested_at=datetime.fromtimestamp(shop.now(), UTC),
    )
    refund_charge(RefundRequestedEvent.of(requested, correlation_id="c"), tools, shop.payments)
    row = store.read(order.order_id, REFUND_ID)
    assert row is not None
    return str(row.stripe_refund_id)


def key_of(order: StoredOrder) -> dict[str, Any]:
    return to_item({"order_id": order.order_id, "refund_id": REFUND_ID})


def set_refund(shop: DlqStack, order: StoredOrder, **changes: Any) -> None:
    shop.dynamodb.update_item(
        TableName=shop.stack.resource("RefundsTable"),
        Key=key_of(order),
        UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in changes),
        ExpressionAttributeNames={f"#{name}": name for name in changes},
        ExpressionAttributeValues=to_item({f":{name}": value for name, value in changes.items()}),
    )


def audit(shop: DlqStack, since: int = -1, until: int = 1) -> tuple[int, dict[str, Any]]:
    days = [f"{datetime.now(UTC) + timedelta(days=offset):%Y-%m-%d}" for offset in (since, until)]
    status, document, _ = shop.ops("audit", "--from", days[0], "--to", days[1])
    return status, document


def test_a_refund_balances(shop: DlqStack) -> None:
    """The charge and its refund are matched; their sums have their signs."""
    refund(shop, shop.pay())
    status, document = audit(shop)
    assert (status, {each["what"]: each["at_stripe_minor"] for each in document["totals"]}) == (
        0,
        {"charge": 2500, "refund": -500},
    )


def test_a_refund_that_failed_balances_if_the_row_knows(shop: DlqStack) -> None:
    """Booked both ways; a row that still says SUCCEEDED is a difference."""
    order = shop.pay()
    shop.standin.fail_refund(refund(shop, order))
    status, document = audit(shop)
    assert (status, document["different"]) == (1, 2)
    assert {each["why"] for each in document["differences"]} == {
        "the row is SUCCEEDED, and Stripe shows the refund as failed"
    }
    set_refund(shop, order, state="FAILED")
    status, document = audit(shop)
    assert (status, document["different"]) == (0, 0)


@pytest.mark.parametrize(
    ("changes", "where", "difference_minor"),
    [
        ({"amount_minor": 499}, "amounts differ", -1),
        ({"state": "PENDING"}, "at Stripe only", -500),
        ({"state": "FAILED"}, "at Stripe only", -500),
    ],
)
def test_a_changed_row_is_found(shop: DlqStack, changes: dict[str, Any], where: str, difference_minor: int) -> None:
    """Another amount, or a state that says that no money went back."""
    order = shop.pay()
    refund(shop, order)
    set_refund(shop, order, **changes)
    status, document = audit(shop)
    [difference] = document["differences"]
    assert (status, difference["where"], difference["difference_minor"]) == (1, where, difference_minor)


def test_a_lost_row_and_an_unknown_refund_are_found(shop: DlqStack) -> None:
    """On the side that lacks it."""
    order = shop.pay()
    refund(shop, order)
    shop.dynamodb.delete_item(TableName=shop.stack.resource("RefundsTable"), Key=key_of(order))
    _, document = audit(shop)
    [lost] = document["differences"]
    assert (lost["where"], lost["order_id"]) == ("at Stripe only", order.order_id)
    at_stripe = refund(shop, order)
    set_refund(shop, order, stripe_refund_id="re_unknown")
    _, document = audit(shop)
    assert {(each["where"], each["stripe_id"]) for each in document["differences"]} == {
        ("at Stripe only", at_stripe),
        ("ours only", "re_unknown"),
    }


def test_a_second_refund_of_one_id_is_found(shop: DlqStack) -> None:
    """Made by hand, with the metadata of ours: the money went back twice."""
    order = shop.pay()
    refund(shop, order)
    intent = str(shop.payment(order.order_id).payment_intent_id)
    metadata = {"order_id": order.order_id, "refund_id": REFUND_ID}
    second = shop.stack.stripe.v1.refunds.create({"payment_intent": intent, "amount": 500, "metadata": metadata})
    status, document = audit(shop)
    [difference] = document["differences"]
    assert (status, difference["stripe_id"], difference["difference_minor"]) == (1, second.id, -500)


def test_a_refund_around_midnight_is_no_difference(shop: DlqStack) -> None:
    """Finalized on another day than it was booked."""
    order = shop.pay()
    refund(shop, order)
    later = int(shop.now()) + 3 * 86400
    set_refund(shop, order, finalized_at=later)
    status, document = audit(shop, 3, 3)
    assert (status, document["totals"][0]["elsewhen"]) == (0, 1)
