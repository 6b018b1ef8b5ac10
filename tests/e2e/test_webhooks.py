"""Stripe's webhooks on the deployed stack: what a customer does at the bank changes the order, and nobody else can."""

import json
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
import requests

from local.stack import Stack
from stripe_standin.faults import Fault
from stripe_standin.webhook_endpoints import signature
from tests.support.deployed_shop import PATIENCE_SECONDS, signed_in
from tests.support.stacks import on_both

_ORDER_AMOUNT = 2990
_ORDER = {
    "currency": "eur",
    "payment_method": "pm_card_threeDSecure2Required",
    "items": [{"sku": "poster", "quantity": 1}],
}


class Customer:
    """Somebody whose card asks for 3-D Secure, and Stripe's events about it."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.stripe = stack, stack.stripe
        self.http = signed_in(stack.issuer.token("cus_webhooks"))
        placed = self.http.post(
            f"{stack.api_url}/orders", json=_ORDER, headers={"Idempotency-Key": str(uuid4())}, timeout=PATIENCE_SECONDS
        )
        self.order_id = placed.json()["order_id"]

    def order(self) -> dict[str, Any]:
        return dict(self.http.get(f"{self.stack.api_url}/orders/{self.order_id}", timeout=PATIENCE_SECONDS).json())

    def status(self) -> str:
        return str(self.order()["status"])

    def status_becomes(self, wanted: str) -> str:
        return str(self.becomes("status", wanted))

    def becomes(self, name: str, wanted: Any) -> Any:
        """The order's field once it is as wanted, or as it is when patience ends."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (value := self.order().get(name)) != wanted and time.monotonic() < deadline:
            time.sleep(0.3)
        return value

    def row_state(self) -> str:
        """Of its payment, which changes within the request that Stripe sends; the order follows."""
        dynamodb = self.stack.aws.client("dynamodb")
        key = {"order_id": {"S": self.order_id}}
        return str(dynamodb.get_item(TableName=self.stack.charges_table, Key=key)["Item"]["state"]["S"])

    def intent(self) -> dict[str, Any]:
        intents = self.stripe.ledger().payment_intents
        [ours] = [dict(each) for each in intents if each["metadata"].get("order_id") == self.order_id]
        return ours

    def charges(self) -> int:
        return len(self.stripe.ledger().charges_of(self.order_id))

    def events(self, type_: str = "") -> list[int]:
        """The indexes of this order's events in Stripe's list, oldest first."""
        intent_id = self.intent()["id"]
        return [
            index
            for index, event in enumerate(self.stripe.events())
            if intent_id in (event["data"]["object"]["id"], event["data"]["object"].get("payment_intent"))
            and event["type"].startswith(type_)
        ]

    def delivered(self, indexes: Sequence[int]) -> set[int]:
        return set(self.stripe.deliver_webhooks(indexes))

    def pays(self) -> None:
        """At the bank; and Stripe says so."""
        self.stripe.authenticate(self.intent()["id"])
        assert self.delivered(self.events()) == {200}
        assert self.status_becomes("PAID") == "PAID"


@pytest.fixture
def customer(stack: Stack) -> Customer:
    """The order waits for its customer."""
    customer = Customer(stack)
    assert customer.status_becomes("REQUIRES_ACTION") == "REQUIRES_ACTION"
    return customer


@on_both
def test_an_order_paid_at_the_bank_is_paid_by_webhook(customer: Customer) -> None:
    """All events are delivered twice, the last one first: one charge."""
    customer.stripe.authenticate(customer.intent()["id"])
    newest_first = customer.events()[::-1]
    assert len(newest_first) >= 2
    assert customer.delivered([*newest_first, *newest_first]) == {200}
    assert customer.status_becomes("PAID") == "PAID"
    assert customer.charges() == 1


def test_a_failed_authentication_is_a_decline(customer: Customer) -> None:
    """And another card pays with the same PaymentIntent: one charge."""
    customer.stripe.authenticate(customer.intent()["id"], succeed=False)
    assert customer.delivered(customer.events()) == {200}
    assert customer.status_becomes("PAYMENT_DECLINED") == "PAYMENT_DECLINED"
    # A duplicate of every event changes nothing.
    assert customer.delivered(customer.events()) == {200}
    assert customer.status() == "PAYMENT_DECLINED"
    assert customer.charges() == 0
    again = customer.http.post(
        f"{customer.stack.api_url}/orders/{customer.order_id}/payments",
        json={"payment_method": "pm_card_visa"},
        headers={"Idempotency-Key": str(uuid4())},
        timeout=PATIENCE_SECONDS,
    )
    assert again.status_code == 202
    assert customer.status_becomes("PAID") == "PAID"
    assert customer.charges() == 1


def test_a_refund_made_by_hand_shows_on_the_order(customer: Customer) -> None:
    """In Stripe's dashboard, say; all of it."""
    customer.pays()
    refund = {"payment_intent": customer.intent()["id"]}
    key = {"Authorization": "Bearer sk_test_local"}
    answer = requests.post(
        f"{customer.stack.stripe_api_base}/v1/refunds", data=refund, headers=key, timeout=PATIENCE_SECONDS
    )
    assert answer.status_code == 200
    assert customer.delivered(customer.events("charge.refunded")) == {200}
    assert customer.becomes("amount_refunded", _ORDER_AMOUNT) == _ORDER_AMOUNT


def test_a_dispute_shows_on_the_order(customer: Customer) -> None:
    """Until it is closed, and how it was."""
    customer.pays()
    dispute_id = customer.stripe.open_dispute(customer.intent()["id"])
    assert customer.delivered(customer.events("charge.dispute.created")) == {200}
    assert customer.becomes("dispute_status", "needs_response") == "needs_response"
    customer.stripe.close_dispute(dispute_id, status="lost")
    assert customer.delivered(customer.events("charge.dispute.closed")) == {200}
    assert customer.becomes("dispute_status", "lost") == "lost"


def test_a_forged_signature_changes_nothing(customer: Customer) -> None:
    """400 without a reason; the very same event, signed by Stripe, is processed."""
    customer.stripe.authenticate(customer.intent()["id"])
    [paid] = customer.events("payment_intent.succeeded")
    body = json.dumps(customer.stripe.events()[paid])
    for header in ({"Stripe-Signature": signature(body, "whsec_guessed", int(time.time()))}, {}):
        answer = requests.post(
            f"{customer.stack.api_url}/stripe/events", data=body, headers=header, timeout=PATIENCE_SECONDS
        )
        assert answer.status_code == 400
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["type"] == "urn:onecharge:problem:not-from-stripe"
    assert customer.row_state() == "REQUIRES_ACTION"
    assert customer.delivered([paid]) == {200}
    assert customer.row_state() == "SUCCEEDED"


def test_an_outage_of_stripe_has_the_event_sent_again(customer: Customer) -> None:
    """503 while Stripe does not answer what holds; delivered once more, it is processed."""
    customer.stripe.authenticate(customer.intent()["id"])
    paid = customer.events("payment_intent.succeeded")
    intent_path = f"/v1/payment_intents/{customer.intent()['id']}"
    customer.stripe.add_fault(Fault.UNAVAILABLE_503, times=None, method="GET", path=intent_path)
    try:
        assert customer.delivered(paid) == {503}
    finally:
        customer.stripe.clear_faults()
    assert customer.row_state() == "REQUIRES_ACTION"
    assert customer.delivered(paid) == {200}
    assert customer.status_becomes("PAID") == "PAID"
