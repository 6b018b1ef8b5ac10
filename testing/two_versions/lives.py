"""Whole lives of orders, each step done by the release whose turn it is. Together they store and send everything."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from local.stripe_standin.faults import Fault
from testing.two_versions.harness import World

DECLINED_CARD = "pm_card_visa_chargeDeclinedInsufficientFunds"
THREE_D_SECURE_CARD = "pm_card_threeDSecure2Required"


def place(world: World, payment_method: str = "pm_card_visa") -> str:
    """The id of a new order of 25 euro, which nobody has published yet."""
    body = {
        "currency": "eur",
        "payment_method": payment_method,
        "items": [{"sku": "mug", "quantity": 2, "unit_amount": 1250}],
    }
    return str(world.http("POST /orders", body, key=world.key())["order_id"])


def paid(world: World) -> dict[str, Any]:
    """Charged at the first attempt."""
    order_id = place(world)
    return world.run_until_idle(order_id)


def paid_with_another_card(world: World) -> dict[str, Any]:
    """Declined, then paid."""
    order_id = place(world, DECLINED_CARD)
    assert world.run_until_idle(order_id)["status"] == "PAYMENT_DECLINED"
    world.http(f"POST /orders/{order_id}/payments", {"payment_method": "pm_card_mastercard"}, key=world.key())
    return world.run_until_idle(order_id)


def paid_after_an_outage(world: World) -> dict[str, Any]:
    """The worker's response is lost after the charge: whoever has the message next finds the PaymentIntent."""
    order_id = place(world)
    of_the_order, intent = {"metadata[order_id]": order_id}, "/v1/payment_intents/*"
    world.stripe.add_fault(Fault.DROP_AFTER, of_the_order, times=3, path=f"{intent}/confirm")
    world.stripe.add_fault(Fault.UNAVAILABLE_503, of_the_order, times=3, path=intent, method="GET")
    shown = world.run_until_idle(order_id)
    world.stripe.clear_faults()
    return shown


def authenticated(world: World) -> dict[str, Any]:
    """3-D Secure: the customer authenticates, and reconcile learns of it."""
    order_id = place(world, THREE_D_SECURE_CARD)
    assert world.run_until_idle(order_id)["status"] == "REQUIRES_ACTION"
    [intent] = [each for each in world.stripe.ledger().payment_intents if each["metadata"]["order_id"] == order_id]
    world.stripe.authenticate(intent["id"])
    world.step(invoke="reconcile", event={})
    return world.run_until_idle(order_id)


def republished(world: World) -> dict[str, Any]:
    """The stream's records are lost: republish sends the order's event again."""
    order_id = place(world)
    world.changed = []
    for item in world.tables["OrdersTable"]:
        item["placed_at"] = {"S": "2026-01-01T00:00:00+00:00"}  # type: ignore[index]  # Long ago, so that it is due.
    world.index()
    world.step(invoke="republish", event={})
    return world.run_until_idle(order_id)


# optional: webhook
def authenticated_at_once(world: World) -> dict[str, Any]:
    """As Stripe's events say, each of which is sent twice."""
    order_id = place(world, THREE_D_SECURE_CARD)
    world.run_until_idle(order_id)
    [intent] = [each for each in world.stripe.ledger().payment_intents if each["metadata"]["order_id"] == order_id]
    world.stripe.authenticate(intent["id"])
    for event in world.stripe_events():
        if event["data"]["object"]["id"] == intent["id"]:
            for _ in range(2):
                assert world.step(webhook=json.dumps(event))["status"] == 200
    return world.run_until_idle(order_id)


# end optional


# optional: due
def due(world: World) -> dict[str, Any]:
    """An invoice that is due today."""
    document = {
        "due_date": datetime.now(UTC).date().isoformat(),
        "document_id": world.key(),
        "customer_id": "cus_1",
        "amount_minor": 2500,
        "currency": "EUR",
        "payment_method": "pm_card_visa",
        "state": "DUE",
    }
    world.tables["DueDocumentsTable"] = [
        {name: {"N" if isinstance(value, int) else "S": str(value)} for name, value in document.items()}
    ]
    for _ in range(2):
        world.step(invoke="place_due_orders", event={})
    [order] = world.tables["OrdersTable"]
    return world.run_until_idle(order["order_id"]["S"])


# end optional


# optional: cancel
def canceled(world: World) -> dict[str, Any]:
    """While it waits for its customer."""
    order_id = place(world, THREE_D_SECURE_CARD)
    world.run_until_idle(order_id)
    world.http(f"POST /orders/{order_id}/cancel", {}, key=world.key())
    return world.run_until_idle(order_id)


def canceled_in_an_outage(world: World) -> dict[str, Any]:
    """Stripe does not answer: the order is CANCELING, and a worker finishes it."""
    order_id = place(world, THREE_D_SECURE_CARD)
    world.run_until_idle(order_id)
    world.stripe.add_fault(Fault.UNAVAILABLE_503, times=None, path="/v1/payment_intents/*/cancel")
    assert world.http(f"POST /orders/{order_id}/cancel", {}, key=world.key())["status"] == "CANCELING"
    world.stripe.clear_faults()
    return world.run_until_idle(order_id)


def canceled_unpublished(world: World) -> dict[str, Any]:
    """Before any worker has seen it."""
    order_id = place(world)
    world.changed = []
    world.http(f"POST /orders/{order_id}/cancel", {}, key=world.key())
    return world.run_until_idle(order_id)


# end optional


# optional: refunds
def refunded(world: World) -> dict[str, Any]:
    """In two parts."""
    order_id = place(world)
    world.run_until_idle(order_id)
    for _ in range(2):
        world.http(f"POST /orders/{order_id}/refunds", {"amount": 1000}, key=world.key())
        shown = world.run_until_idle(order_id)
    return shown


def refund_failed(world: World) -> dict[str, Any]:
    """Stripe makes the refund, and takes it back later: its amount is free again."""
    order_id = place(world)
    world.run_until_idle(order_id)
    world.http(f"POST /orders/{order_id}/refunds", {}, key=world.key())
    assert world.run_until_idle(order_id)["amount_refunded"] == 2500
    [refund] = world.stripe.ledger().refunds
    world.stripe.fail_refund(refund["id"])
    world.step(invoke="reconcile", event={})
    return world.run_until_idle(order_id)


# end optional

LIVES: Mapping[str, tuple[Callable[[World], dict[str, Any]], str]] = {
    "paid": (paid, "PAID"),
    "paid with another card": (paid_with_another_card, "PAID"),
    "paid after an outage": (paid_after_an_outage, "PAID"),
    "authenticated": (authenticated, "PAID"),
    "republished": (republished, "PAID"),
    "authenticated at once": (authenticated_at_once, "PAID"),  # optional: webhook
    "due": (due, "PAID"),  # optional: due
    # optional: cancel
    "canceled": (canceled, "CANCELED"),
    "canceled in an outage": (canceled_in_an_outage, "CANCELED"),
    "canceled unpublished": (canceled_unpublished, "CANCELED"),
    # end optional
    # optional: refunds
    "refunded": (refunded, "PAID"),
    "refund failed": (refund_failed, "PAID"),
    # end optional
}
"""Each with the status in which it ends."""
