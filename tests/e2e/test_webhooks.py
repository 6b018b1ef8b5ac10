"""Stripe's webhooks on the deployed stack: what a customer does at the bank moves the order, and nobody else can."""

import json
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
import requests

from local.stack import Stack
from local.stripe_standin.admin import StandInAdmin
from local.stripe_standin.faults import Fault
from local.stripe_standin.webhooks import signature

_PATIENCE_SECONDS = 60
_ORDER = {
    "customer_id": "cus_webhooks",
    "currency": "eur",
    "payment_method": "pm_card_threeDSecure2Required",
    "items": [{"sku": "mug", "quantity": 1, "unit_amount": 3250}],
}


class Customer:
    """Somebody whose card asks for 3-D Secure, and what Stripe tells of it."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.stripe = stack, StandInAdmin(stack.stripe_api_base)
        placed = requests.post(
            f"{stack.api_url}/orders", json=_ORDER, headers={"Idempotency-Key": str(uuid4())}, timeout=30
        )
        self.order_id = placed.json()["order_id"]

    def status(self) -> str:
        answer = requests.get(f"{self.stack.api_url}/orders/{self.order_id}", timeout=30)
        return str(answer.json()["status"])

    def status_becomes(self, wanted: str) -> str:
        """The status once it is as wanted, or the last one when patience ends."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (status := self.status()) != wanted and time.monotonic() < deadline:
            time.sleep(0.3)
        return status

    def row_state(self) -> str:
        """Of its charge, which changes within the request that Stripe sends; the order follows."""
        dynamodb = self.stack.aws.client("dynamodb")
        key = {"order_id": {"S": self.order_id}, "attempt": {"N": "1"}}
        return str(dynamodb.get_item(TableName=self.stack.charges_table, Key=key)["Item"]["state"]["S"])

    def intent(self) -> dict[str, Any]:
        intents = self.stripe.ledger().payment_intents
        [ours] = [dict(each) for each in intents if each["metadata"].get("order_id") == self.order_id]
        return ours

    def charges(self) -> int:
        return len(self.stripe.ledger().charges_of(self.order_id))

    def events(self) -> list[int]:
        """Where the events of this order are in Stripe's list, oldest first."""
        events = self.stripe.events()
        return [
            place
            for place, event in enumerate(events)
            if event["data"]["object"].get("metadata", {}).get("order_id") == self.order_id
        ]

    def delivered(self, places: Sequence[int]) -> set[int]:
        return set(self.stripe.deliver_webhooks(places))


@pytest.fixture
def customer(stack: Stack) -> Customer:
    """The order waits for its customer."""
    customer = Customer(stack)
    assert customer.status_becomes("REQUIRES_ACTION") == "REQUIRES_ACTION"
    return customer


def test_an_order_paid_at_the_bank_is_paid_by_webhook(customer: Customer) -> None:
    """All events are delivered twice, the last one first: one charge."""
    customer.stripe.authenticate(customer.intent()["id"])
    newest_first = customer.events()[::-1]
    assert len(newest_first) >= 3
    assert customer.delivered([*newest_first, *newest_first]) == {200}
    assert customer.status_becomes("PAID") == "PAID"
    assert customer.charges() == 1


def test_a_failed_authentication_is_a_decline(customer: Customer) -> None:
    """And nobody can confirm that PaymentIntent any more."""
    customer.stripe.authenticate(customer.intent()["id"], succeed=False)
    assert customer.delivered(customer.events()) == {200}
    assert customer.status_becomes("PAYMENT_DECLINED") == "PAYMENT_DECLINED"
    assert customer.intent()["status"] == "canceled"
    # What Stripe tells of the canceling moves nothing any more.
    assert customer.delivered(customer.events()) == {200}
    assert customer.status() == "PAYMENT_DECLINED"
    assert customer.charges() == 0


def test_a_forged_signature_changes_nothing(customer: Customer) -> None:
    """400 without a reason; the very same event, signed by Stripe, is settled."""
    customer.stripe.authenticate(customer.intent()["id"])
    [*_, paid] = customer.events()
    body = json.dumps(customer.stripe.events()[paid])
    for header in ({"Stripe-Signature": signature(body, "whsec_guessed", int(time.time()))}, {}):
        answer = requests.post(f"{customer.stack.api_url}/stripe/events", data=body, headers=header, timeout=30)
        assert answer.status_code == 400
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["type"] == "urn:onecharge:problem:not-from-stripe"
    assert customer.row_state() == "REQUIRES_ACTION"
    assert customer.delivered([paid]) == {200}
    assert customer.row_state() == "SUCCEEDED"


def test_an_outage_of_stripe_has_the_event_sent_again(customer: Customer) -> None:
    """503 while Stripe cannot be asked what holds; delivered once more, it is settled."""
    customer.stripe.authenticate(customer.intent()["id"])
    paid = customer.events()[-1:]
    intent_path = f"/v1/payment_intents/{customer.intent()['id']}"
    customer.stripe.add_fault(Fault.UNAVAILABLE_503, times=None, method="GET", path=intent_path)
    try:
        assert customer.delivered(paid) == {503}
    finally:
        customer.stripe.clear_faults()
    assert customer.row_state() == "REQUIRES_ACTION"
    assert customer.delivered(paid) == {200}
    assert customer.status_becomes("PAID") == "PAID"
