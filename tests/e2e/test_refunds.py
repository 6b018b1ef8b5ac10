"""Refunds on the deployed stack: from HTTP to Stripe's ledger and back to the order, each of them once."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import requests

from local.observe import drain, open_tap
from local.stack import Stack
from tests.support.deployed_shop import AMOUNT, PRICE, DeployedShop, eventually
from tests.support.stacks import on_both


def paid(shop: DeployedShop) -> str:
    """An order of two pieces that is paid."""
    order_id = str(shop.order().json()["order_id"])
    assert shop.decided_status(order_id) == "PAID"
    return order_id


def decided(shop: DeployedShop, order_id: str) -> dict[str, Any]:
    """The order, once none of its refunds is PENDING."""

    def see() -> dict[str, Any]:
        return dict(shop.get(order_id).json())

    return eventually(see, lambda order: all(each["status"] != "PENDING" for each in order["refunds"]))


def refunded(shop: DeployedShop, order_id: str) -> list[int]:
    """What Stripe's ledger says was given back; never more than was taken."""
    amounts = [each["amount"] for each in shop.stripe.ledger().refunds if each["metadata"].get("order_id") == order_id]
    assert sum(charge.amount_minor for charge in shop.charges(order_id)) - sum(amounts) >= 0
    return amounts


@on_both
def test_two_parts_are_refunded_and_a_third_is_too_much(shop: DeployedShop) -> None:
    """202, 202, 409; the order shows both, and so does Stripe."""
    order_id = paid(shop)
    answers = [shop.refund(order_id, amount=amount) for amount in (PRICE, PRICE - 10, 20)]
    assert [answer.status_code for answer in answers] == [202, 202, 409]
    assert answers[2].headers["Content-Type"] == "application/problem+json"
    order = decided(shop, order_id)
    assert order["amount_refunded"] == AMOUNT - 10
    assert {(each["amount"], each["status"]) for each in order["refunds"]} == {
        (PRICE, "SUCCEEDED"),
        (PRICE - 10, "SUCCEEDED"),
    }
    assert sorted(refunded(shop, order_id)) == [PRICE - 10, PRICE]


def test_a_client_that_retries_has_one_refund_of_all(shop: DeployedShop) -> None:
    """The same answer each time, also once it is made."""
    order_id, key = paid(shop), str(uuid4())
    answers = [shop.refund(order_id, key) for _ in range(3)]
    decided(shop, order_id)
    answers.append(shop.refund(order_id, key))
    assert {answer.status_code for answer in answers} == {202}
    assert {answer.text for answer in answers} == {answers[0].text}
    assert shop.refund(order_id, key, amount=1).status_code == 422
    assert refunded(shop, order_id) == [AMOUNT]


def test_refunds_at_once_are_never_more_than_was_paid(shop: DeployedShop) -> None:
    """Eight of one piece: at most two have room, and what is accepted is made."""
    order_id = paid(shop)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: shop.refund(order_id, amount=PRICE).status_code, range(8)))
    assert set(answers) <= {202, 409, 503}
    assert 1 <= answers.count(202) <= 2
    decided(shop, order_id)
    assert refunded(shop, order_id) == [PRICE] * answers.count(202)


def test_ten_deliveries_make_one_refund(shop: DeployedShop, stack: Stack) -> None:
    """Under new message ids, before and after it is made: each tells it."""
    sqs, sns = stack.aws.client("sqs"), stack.aws.client("sns")
    order_id = paid(shop)
    tap = open_tap(stack, f"tap-{uuid4()}", FilterPolicy='{"event_type": ["onecharge.refund.requested"]}')
    refund_id = shop.refund(order_id, amount=PRICE).json()["refund_id"]
    [message] = eventually(lambda: drain(stack, tap.url), bool)
    sns.unsubscribe(SubscriptionArn=tap.subscription_arn)

    def deliver(times: int) -> None:
        for _ in range(times):
            sqs.send_message(QueueUrl=stack.refunds_queue_url, MessageBody=message["Body"])

    deliver(5)
    [shown] = decided(shop, order_id)["refunds"]
    assert (shown["refund_id"], shown["status"]) == (refund_id, "SUCCEEDED")
    deliver(5)

    def told() -> int:
        return sum("refund told" in line for line in shop.log().splitlines() if refund_id in line)

    assert eventually(told, lambda count: count >= 11) >= 11
    assert refunded(shop, order_id) == [PRICE]


def test_a_refund_by_hand_counts(shop: DeployedShop, stack: Stack) -> None:
    """Stripe's event says so: the order shows it, and only the rest can be refunded."""
    order_id = paid(shop)
    [charge] = shop.charges(order_id)
    by_hand = requests.post(
        f"{stack.stripe_api_base}/v1/refunds",
        data={"payment_intent": charge.payment_intent_id, "amount": str(PRICE), "metadata[order_id]": order_id},
        headers={"Authorization": "Bearer sk_test_local"},
        timeout=90,
    )
    assert by_hand.status_code == 200
    shop.stripe.deliver_webhooks()

    def shown() -> int:
        return int(shop.get(order_id).json()["amount_refunded"])

    assert eventually(shown, lambda amount: amount == PRICE) == PRICE
    assert shop.refund(order_id, amount=PRICE + 10).status_code == 409
    assert shop.refund(order_id, amount=PRICE).status_code == 202
    assert [each["status"] for each in decided(shop, order_id)["refunds"]] == ["SUCCEEDED"]
    shop.stripe.deliver_webhooks()
    assert eventually(shown, lambda amount: amount == AMOUNT) == AMOUNT
    assert refunded(shop, order_id) == [PRICE, PRICE]
