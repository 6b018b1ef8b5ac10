"""On the deployed stack: orders get into trouble for real, and `python -m ops explain` names the cause."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from local.stack import Stack
from onecharge.contract.money import as_money
from tests.support.deployed_shop import (
    AMOUNT,
    CURRENCY,
    DECLINED_CARD,
    PRICE,
    THREE_D_SECURE_CARD,
    DeployedShop,
    eventually,
)
from tests.support.ops_command import Operator
from tests.support.stacks import own_stack

pytestmark = own_stack


@contextmanager
def unread(stack: Stack, source: str) -> Iterator[None]:
    """Disables the reader of this stream or queue for as long as the block lasts."""
    client = stack.aws.client("lambda")
    mappings = client.list_event_source_mappings()["EventSourceMappings"]
    [mapping] = [each for each in mappings if source in each["EventSourceArn"]]
    client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    try:
        yield
    finally:
        client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)


def orders_stream(stack: Stack) -> str:
    return f":table/{stack.orders_table}/stream/"


def intent_of(shop: DeployedShop, order_id: str) -> str:
    """The order's PaymentIntent at Stripe."""
    [found] = [each for each in shop.stripe.ledger().payment_intents if each["metadata"].get("order_id") == order_id]
    return str(found["id"])


# ---------------------------------------------------------------- nothing is broken


def test_a_paid_order_by_any_of_its_names(shop: DeployedShop, operator: Operator) -> None:
    """By its id, and its PaymentIntent's; with everything that happened, and exit status 0."""
    order_id = shop.order().json()["order_id"]
    assert shop.decided_status(order_id) == "PAID"
    intent = intent_of(shop, order_id)
    for reference in (order_id, intent):
        answer = operator.explain(reference)
        assert (answer.status, answer.stderr) == (0, "")
        assert answer.document["order_id"] == order_id
        assert answer.document["states"] == {"orders": "PAID", "payments": "SUCCEEDED", intent: "succeeded"}
        assert answer.says == ["the order is PAID: nothing is left to do"]
    happened = [moment["what"] for moment in answer.document["timeline"]]
    assert any("payment finalized" in what for what in happened)  # A line of the log.
    for word in (
        f"placed: {as_money(AMOUNT, CURRENCY)}",
        "attempt 1 was claimed",
        f"{intent} was created",
        "CHARGED",
    ):
        assert any(word in what for what in happened), word
    printed = operator.text("explain", order_id)
    assert "attempt 1 became SUCCEEDED" in printed
    assert "_secret_" not in printed


def test_a_declined_order_and_one_that_waits_for_its_customer(shop: DeployedShop, operator: Operator) -> None:
    """Nothing is broken: another card can be tried; the customer has until then."""
    [declined] = operator.explain(shop.placed(DECLINED_CARD, "PAYMENT_DECLINED")).says
    assert "another card" in declined
    before = int(time.time())
    order_id = shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION")
    after = int(time.time())
    [waiting] = operator.explain(order_id).document["findings"]
    assert "authenticate" in waiting["says"]
    assert before <= waiting["until"] - 43_200 <= after


# ---------------------------------------------------------------- broken


def test_an_order_that_is_never_published_and_one_that_is_poison(
    shop: DeployedShop, stack: Stack, operator: Operator
) -> None:
    """republish would publish it; the DLQ, with the reason and the command. Looking changes nothing."""
    with unread(stack, orders_stream(stack)):
        order_id = str(shop.order().json()["order_id"])
        answer = operator.explain(order_id)
        assert (answer.status, answer.says) == (0, ["no worker has taken attempt 1 yet"])
        shop.deliver(json.dumps({"subject": order_id, "type": "onecharge.order.placed", "data": {}}))
        found = eventually(lambda: operator.explain(order_id), lambda answer: answer.status == 1)
        assert "PaymentsDlq" in found.says[0]
        assert "dlq redrive" in found.document["findings"][0]["fix"]
        assert operator.explain(order_id).says == found.says


def test_a_refund_that_the_bank_returns(shop: DeployedShop, operator: Operator) -> None:
    """It succeeded, and failed later: the customer has no money back."""
    order_id = shop.placed("pm_card_visa", "PAID")
    refund_id = shop.refund(order_id, amount=PRICE).json()["refund_id"]
    assert eventually(
        lambda: shop.get(order_id).json()["refunds"],
        lambda refunds: [(each["refund_id"], each["status"]) for each in refunds] == [(refund_id, "SUCCEEDED")],
    )
    [made] = [each for each in shop.stripe.ledger().refunds if each["metadata"].get("order_id") == order_id]
    shop.stripe.fail_refund(made["id"])
    found = operator.explain(order_id)
    assert any("failed at Stripe" in each for each in found.says)
    assert found.status == 1
