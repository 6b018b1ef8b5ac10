"""Refunds on the deployed stack: by the API and by hand, never more than was paid."""

import requests

from local.given_stripe import STRIPE_API_KEY
from tests.support.deployed_shop import AMOUNT, PRICE, DeployedShop, eventually
from tests.support.stacks import on_both


@on_both
def test_refunds_by_the_api_and_by_hand_are_never_more_than_was_paid(shop: DeployedShop) -> None:
    """A retried request is one refund. One made in the dashboard counts once Stripe's event has arrived: what is left
    can be refunded, and no more."""
    order_id = shop.placed("pm_card_visa", "PAID")

    def shown() -> tuple[int, set[str]]:
        order = shop.get(order_id).json()
        return order["amount_refunded"], {each["status"] for each in order["refunds"]}

    answers = [shop.refund(order_id, "k", amount=PRICE - 10) for _ in range(2)]
    assert [(answer.status_code, answer.text) for answer in answers] == [(202, answers[0].text)] * 2
    assert eventually(shown, lambda now: now == (PRICE - 10, {"SUCCEEDED"})) == (PRICE - 10, {"SUCCEEDED"})
    [charge] = shop.charges(order_id)
    by_hand = {"payment_intent": charge.payment_intent_id, "amount": "10", "metadata[order_id]": order_id}
    url, headers = f"{shop.stack.stripe_api_base}/v1/refunds", {"Authorization": f"Bearer {STRIPE_API_KEY}"}
    requests.post(url, by_hand, headers=headers, timeout=90).raise_for_status()
    shop.stripe.deliver_webhooks()
    assert eventually(shown, lambda now: now[0] == PRICE)[0] == PRICE
    refused = shop.refund(order_id, amount=PRICE + 1)
    assert (refused.status_code, refused.headers["Content-Type"]) == (409, "application/problem+json")
    assert shop.refund(order_id, amount=PRICE).status_code == 202
    assert eventually(shown, lambda now: now == (AMOUNT, {"SUCCEEDED"})) == (AMOUNT, {"SUCCEEDED"})
    made = [each["amount"] for each in shop.stripe.ledger().refunds if each["metadata"].get("order_id") == order_id]
    assert sorted(made) == [10, PRICE - 10, PRICE]
