"""An order's whole way on the deployed stack: from HTTP to the Stripe ledger and back to the order's status."""

import json
from uuid import uuid4

import pytest
import urllib3
from urllib3 import HTTPHeaderDict

from local.observe import drain, open_tap
from local.stack import Stack
from stripe_standin.faults import Fault
from tests.support.deployed_shop import AMOUNT, PATIENCE_SECONDS, PRICE, SKU, DeployedShop, eventually
from tests.support.stacks import on_both

FUNCTIONS = {"orders_api", "publish_events", "charge_order", "update_order"}


@on_both
@pytest.mark.parametrize(
    ("payment_method", "status", "charges"),
    [
        ("pm_card_visa", "PAID", 1),
        ("pm_card_visa_chargeDeclinedInsufficientFunds", "PAYMENT_DECLINED", 0),
        ("pm_card_threeDSecure2Required", "REQUIRES_ACTION", 0),
    ],
)
def test_an_order_comes_to_what_its_card_allows(
    shop: DeployedShop, payment_method: str, status: str, charges: int
) -> None:
    """And the ledger has exactly the charge that it should."""
    placed = shop.order(payment_method=payment_method)
    assert placed.status_code == 202
    order_id = placed.json()["order_id"]
    assert placed.headers["Location"] == f"/orders/{order_id}"
    assert shop.decided_status(order_id) == status
    assert [charge.amount_minor for charge in shop.charges(order_id)] == [AMOUNT] * charges


def test_a_key_that_arrives_twice_is_refused(shop: DeployedShop) -> None:
    """A proxy that repeats the header turns `k` into `k,k`, which would be a second order: 400, nothing is stored."""
    shop.order(key := str(uuid4()))
    stored, authorization = shop.stored_orders(), str(shop.http.headers["Authorization"])
    headers = HTTPHeaderDict([("Authorization", authorization), ("Idempotency-Key", key), ("Idempotency-Key", key)])
    url = f"{shop.stack.api_url}/orders"
    answer = urllib3.request("POST", url, json=shop.body(), headers=headers, timeout=PATIENCE_SECONDS)
    assert (answer.status, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert "A header that is sent twice arrives with a comma." in answer.json()["detail"]
    assert shop.stored_orders() == stored


def test_twenty_deliveries_make_one_charge(shop: DeployedShop, stack: Stack) -> None:
    """Under new message ids, before and after its payment is finalized."""
    tap_url = open_tap(stack, f"tap-{uuid4()}")
    order_id = shop.order().json()["order_id"]
    [message] = eventually(lambda: drain(stack, tap_url), bool)
    shop.deliver(*[message["Body"]] * 10)
    assert shop.decided_status(order_id) == "PAID"
    shop.deliver(*[message["Body"]] * 10)
    ended = "duplicate ignored: the attempt has ended"
    assert eventually(lambda: shop.log().count(ended), lambda count: count >= 10) >= 10
    assert len(shop.charges(order_id)) == 1


@pytest.mark.parametrize("fault", [Fault.DROP_AFTER, Fault.ERROR_500_AFTER])
def test_whatever_stripe_does_the_order_is_paid_once(shop: DeployedShop, fault: Fault) -> None:
    """An answer lost, a 500 that hides a charge."""
    shop.stripe.add_fault(fault, {"amount": str(3 * PRICE)})
    placed = shop.order(items=[{"sku": SKU, "quantity": 3}])
    assert shop.decided_status(placed.json()["order_id"]) == "PAID"
    assert len(shop.charges(placed.json()["order_id"])) == 1


def test_one_correlation_id_follows_the_order(shop: DeployedShop) -> None:
    """Through every function's log, from the HTTP request to the order's last move."""
    placed = shop.order()
    shop.decided_status(placed.json()["order_id"])
    correlation_id = placed.headers["X-Correlation-Id"]

    def services() -> set[str]:
        lines = [line for line in shop.log().splitlines() if line.startswith("{") and correlation_id in line]
        return {json.loads(line)["service"] for line in lines}

    assert eventually(services, lambda seen: seen == FUNCTIONS) == FUNCTIONS


def test_a_card_number_is_refused_and_in_no_log(shop: DeployedShop) -> None:
    """400 problem+json over HTTP; nothing is stored."""
    before = shop.stored_orders()
    answer = shop.order(payment_method="4000-0566-5566-5556")
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert shop.stored_orders() == before
    log = eventually(shop.log, lambda log: answer.json()["correlation_id"] in log)
    assert answer.json()["correlation_id"] in log
    assert not [each for each in ("4000-0566-5566-5556", "4000056655665556") if each in log + answer.text]
