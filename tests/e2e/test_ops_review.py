"""On the deployed stack: orders that need review for real, and `python -m ops review` resolves each."""

import time
from typing import Any

import requests

from local.given_stripe import STRIPE_API_KEY
from local.stack import Stack
from stripe_standin.faults import Fault
from tests.support.deployed_shop import DeployedShop, eventually
from tests.support.ops_command import Operator
from tests.support.stacks import own_stack

pytestmark = own_stack

INVALID = {"type": "invalid_request_error", "code": "parameter_unknown", "message": "Received unknown parameter: x"}


def in_review(shop: DeployedShop, stack: Stack) -> str:
    """An order whose every request Stripe has refused as invalid for an hour, as after a faulty deploy."""
    shop.stripe.add_fault(Fault.RESPONSE, times=None, status=400, error=INVALID)
    placed = shop.order()
    assert placed.status_code == 202, placed.text
    order_id = str(placed.json()["order_id"])
    dynamodb, key = stack.aws.client("dynamodb"), {"order_id": {"S": order_id}}

    def row() -> dict[str, Any]:
        return dict(dynamodb.get_item(TableName=stack.charges_table, Key=key).get("Item", {}))

    assert eventually(lambda: "refused_at" in row(), bool)
    dynamodb.update_item(  # The hour is over.
        TableName=stack.charges_table,
        Key=key,
        UpdateExpression="SET refused_at = :an_hour_ago",
        ConditionExpression="attribute_exists(refused_at)",
        ExpressionAttributeValues={":an_hour_ago": {"N": str(int(time.time()) - 3700)}},
    )
    assert eventually(lambda: shop.get(order_id).json()["status"], lambda status: status == "NEEDS_REVIEW")
    shop.stripe.clear_faults()
    return order_id


def test_a_cancellation_is_finished_at_stripe(shop: DeployedShop, stack: Stack, operator: Operator) -> None:
    """reconcile cancels it on Stripe's word; nothing is charged, then or later."""
    order_id = in_review(shop, stack)
    words = ("review", "resolve", order_id, "--as", "cancel", "--reason", "the customer called")
    assert operator.run(*words, "--yes").status == 0
    assert "CANCELING" in operator.explain(order_id).causes
    assert "CANCELING" in [
        each["cause"] for each in operator.run("pending").document["pending"] if each["order_id"] == order_id
    ]
    answer = stack.aws.client("lambda").invoke(FunctionName=stack.reconcile_function, Payload=b"{}")
    assert "FunctionError" not in answer, answer["Payload"].read()
    assert eventually(lambda: shop.get(order_id).json()["status"], lambda status: status == "CANCELED") == "CANCELED"
    assert shop.charges(order_id) == []
    [intent] = [each for each in shop.stripe.ledger().payment_intents if each["metadata"].get("order_id") == order_id]
    assert (intent["status"], intent["cancellation_reason"]) == ("canceled", "requested_by_customer")


def test_the_second_payment_of_an_order_is_refunded_once(shop: DeployedShop, operator: Operator) -> None:
    """It was charged by hand, too: explain names the command, and the command's second run finds nothing to do."""
    order_id = shop.placed("pm_card_visa", "PAID")
    body = {"amount": 2500, "currency": "eur", "payment_method": "pm_card_visa", "confirm": "true"}
    ours = {"metadata[order_id]": order_id, "allowed_payment_method_types[]": "card"}
    url = f"{shop.stack.stripe_api_base}/v1/payment_intents"
    second = requests.post(url, data=body | ours, auth=(STRIPE_API_KEY, ""), timeout=30).json()["id"]
    [finding] = [each for each in operator.explain(order_id).document["findings"] if each["cause"] == "PAID_TWICE"]
    assert "--as refund-second" in finding["fix"]
    words = ("review", "resolve", order_id, "--as", "refund-second", "--reason", "charged by hand, too", "--yes")
    assert [operator.run(*words).status for _ in range(2)] == [0, 1]
    refunds = [each for each in shop.stripe.ledger().refunds if each["payment_intent"] == second]
    assert [(each["amount"], each["status"]) for each in refunds] == [(2500, "succeeded")]
    assert shop.get(order_id).json()["status"] == "PAID"
    assert "PAID_TWICE" not in operator.explain(order_id).causes
