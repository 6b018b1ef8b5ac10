"""On the deployed stack: orders that are held for real, and `python -m ops release` lets each go on."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import requests

from local.given_stripe import STRIPE_API_KEY
from local.stack import Stack
from onecharge.runtime.dynamodb import from_item, shard_of, to_item
from tests.support.deployed_shop import AMOUNT, CURRENCY, DeployedShop, eventually, shop_of
from tests.support.ops_command import Operator
from tests.support.stacks import own_stack

pytestmark = own_stack


def held(shop: DeployedShop, stack: Stack, operator: Operator) -> str:
    """An order that reaches its worker a day after it was placed, as after an outage."""
    key = {"order_id": {"S": shop.placed("pm_card_visa", "PAID")}}
    dynamodb, order_id = stack.aws.client("dynamodb"), f"ord_{uuid4().hex}"
    paid = from_item(dynamodb.get_item(TableName=stack.orders_table, Key=key)["Item"])
    kept = {name: value for name, value in paid.items() if name not in ("paid_at", "paid_attempt", "expires_at")}
    at = (datetime.now(UTC) - timedelta(hours=25)).isoformat()
    fresh = {"status": "PENDING", "waiting_shard": shard_of(order_id), "payment_revision": 0, "outcomes": {}}
    new = kept | fresh | {"order_id": order_id, "placed_at": at, "waiting_since": at}
    dynamodb.put_item(TableName=stack.orders_table, Item=to_item(new))
    assert eventually(lambda: operator.explain(order_id).says[0], lambda says: says.startswith("held: "))
    return order_id


def test_an_order_that_stripe_has_nothing_of_is_charged_once(
    shop: DeployedShop, stack: Stack, operator: Operator
) -> None:
    """explain and pending name the command; a dry run changes nothing; a second run finds nothing to do."""
    order_id = held(shop, stack, operator)
    [listed] = [each for each in operator.run("pending").document["pending"] if each["order_id"] == order_id]
    assert f"release {order_id}" in listed["fix"]
    assert [operator.run("release", order_id).status, shop.get(order_id).json()["status"]] == [1, "PENDING"]
    assert operator.run("release", order_id, "--yes").status == 0
    assert shop.decided_status(order_id) == "PAID"
    assert operator.run("release", order_id, "--yes").status == 1
    assert len(shop.charges(order_id)) == 1


def test_a_charge_that_is_found_pays_the_order_and_a_second_one_is_a_persons(
    shop: DeployedShop, stack: Stack, operator: Operator
) -> None:
    """Stripe has charged it under a key that it has forgotten; then somebody charges it by hand."""
    order_id = held(shop, stack, operator)

    def charge() -> str:
        names = {"shop": shop_of(stack), "order_id": order_id, "customer_id": "cus_e2e"}
        body = {"amount": AMOUNT, "currency": CURRENCY, "payment_method": "pm_card_visa", "confirm": "true"}
        ours = {"allowed_payment_method_types[]": "card", **{f"metadata[{name}]": names[name] for name in names}}
        url = f"{stack.stripe_api_base}/v1/payment_intents"
        return str(requests.post(url, data=body | ours, auth=(STRIPE_API_KEY, ""), timeout=30).json()["id"])

    first = charge()
    assert operator.run("release", order_id, "--yes").status == 0
    assert shop.decided_status(order_id) == "PAID"
    second = charge()
    says = operator.explain(order_id).says
    assert any(each.startswith(f"{second} is succeeded") and "another PaymentIntent" in each for each in says)
    assert operator.explain(order_id).document["states"].keys() >= {first, second}
    assert len(shop.charges(order_id)) == 2
