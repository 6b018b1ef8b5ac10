"""Stripe's webhooks on the deployed stack: what a customer does at the bank changes the order, and nobody else can."""

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
import requests

from local.stack import Stack
from stripe_standin.webhook_endpoints import signature
from tests.support.deployed_shop import AMOUNT, PATIENCE_SECONDS, THREE_D_SECURE_CARD, DeployedShop, eventually
from tests.support.stacks import on_both


class Customer:
    """Somebody whose order waits for 3-D Secure, and Stripe's events about it."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.stripe = stack, stack.stripe
        self.shop = DeployedShop(stack, "cus_webhooks")
        self.order_id = self.shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION")
        [self.intent_id] = [
            each["id"]
            for each in self.stripe.ledger().payment_intents
            if each["metadata"].get("order_id") == self.order_id
        ]

    def becomes(self, name: str, wanted: Any) -> bool:
        """Whether the order's field becomes this value."""
        see = lambda: self.shop.get(self.order_id).json().get(name)  # noqa: E731
        return bool(eventually(see, lambda seen: seen == wanted) == wanted)

    def charges(self) -> int:
        return len(self.shop.charges(self.order_id))

    def row_state(self) -> str:
        """Of its payment, which changes within the request that Stripe sends; the order follows."""
        dynamodb, key = self.stack.aws.client("dynamodb"), {"order_id": {"S": self.order_id}}
        return str(dynamodb.get_item(TableName=self.stack.charges_table, Key=key)["Item"]["state"]["S"])

    def events(self, type_: str = "") -> list[int]:
        """The indexes of this order's events in Stripe's list, oldest first."""
        return [
            index
            for index, event in enumerate(self.stripe.events())
            if self.intent_id in (event["data"]["object"]["id"], event["data"]["object"].get("payment_intent"))
            and event["type"].startswith(type_)
        ]

    def delivered(self, indexes: Sequence[int]) -> set[int]:
        return set(self.stripe.deliver_webhooks(indexes))


@pytest.fixture
def customer(stack: Stack) -> Customer:
    return Customer(stack)


@on_both
def test_an_order_paid_at_the_bank_is_paid_by_webhook(customer: Customer) -> None:
    """All events are delivered twice, the last one first: one charge. A refund by hand and a dispute show on it."""
    customer.stripe.authenticate(customer.intent_id)
    newest_first = customer.events()[::-1]
    assert len(newest_first) >= 2
    assert customer.delivered([*newest_first, *newest_first]) == {200}
    assert customer.becomes("status", "PAID")
    assert customer.charges() == 1

    dispute_id = customer.stripe.open_dispute(customer.intent_id)
    assert customer.delivered(customer.events("charge.dispute.created")) == {200}
    assert customer.becomes("dispute_status", "needs_response")
    customer.stripe.close_dispute(dispute_id, status="won")
    assert customer.delivered(customer.events("charge.dispute.closed")) == {200}
    assert customer.becomes("dispute_status", "won")

    url, key = f"{customer.stack.stripe_api_base}/v1/refunds", {"Authorization": "Bearer sk_test_local"}
    refund = {"payment_intent": customer.intent_id}
    assert requests.post(url, data=refund, headers=key, timeout=PATIENCE_SECONDS).status_code == 200
    assert customer.delivered(customer.events("charge.refunded")) == {200}
    assert customer.becomes("amount_refunded", AMOUNT)


def test_a_failed_authentication_is_a_decline(customer: Customer) -> None:
    """A duplicate of every event changes nothing, and another card pays with the same PaymentIntent: one charge."""
    customer.stripe.authenticate(customer.intent_id, succeed=False)
    for _ in range(2):
        assert customer.delivered(customer.events()) == {200}
        assert customer.becomes("status", "PAYMENT_DECLINED")
    assert customer.charges() == 0
    assert customer.shop.post(f"{customer.order_id}/payments", payment_method="pm_card_visa").status_code == 202
    assert customer.becomes("status", "PAID")
    assert customer.charges() == 1


def test_a_forged_signature_changes_nothing(customer: Customer) -> None:
    """400 without a reason; the very same event, signed by Stripe, is processed."""
    customer.stripe.authenticate(customer.intent_id)
    [paid] = customer.events("payment_intent.succeeded")
    body, url = json.dumps(customer.stripe.events()[paid]), f"{customer.stack.api_url}/stripe/events"
    for header in ({"Stripe-Signature": signature(body, "whsec_guessed", int(time.time()))}, {}):
        answer = requests.post(url, data=body, headers=header, timeout=PATIENCE_SECONDS)
        assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
        assert answer.json()["type"] == "urn:onecharge:problem:not-from-stripe"
    assert customer.row_state() == "REQUIRES_ACTION"
    assert customer.delivered([paid]) == {200}
    assert customer.row_state() == "SUCCEEDED"
