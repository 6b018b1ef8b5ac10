"""On the deployed stack: after faults the audit finds no difference, and what is tampered with it finds."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import stripe

from local.given_stripe import STRIPE_API_KEY
from local.stack import Stack
from stripe_standin.faults import Fault
from tests.support.deployed_shop import AMOUNT, CURRENCY, DECLINED_CARD, PRICE, DeployedShop, eventually
from tests.support.ops_command import Operator


def audit(operator: Operator) -> Mapping[str, Any]:
    """From yesterday until tomorrow."""
    days = [f"{datetime.now(UTC) + timedelta(days=offset):%Y-%m-%d}" for offset in (-1, 1)]
    answer = operator.run("audit", "--from", days[0], "--until", days[1])
    assert answer.document is not None, answer.stderr
    assert answer.status == bool(answer.document["differences"])
    document: Mapping[str, Any] = answer.document
    return document


def differences_of(document: Mapping[str, Any], orders: set[str]) -> list[Mapping[str, Any]]:
    """Those of these orders: other tests of this stack leave theirs."""
    return [each for each in document["differences"] if each["order_id"] in orders]


def charged(document: Mapping[str, Any]) -> int:
    return int(document["charged_minor"].get(CURRENCY.upper(), 0))


def test_faults_leave_no_difference_and_tampering_does(shop: DeployedShop, stack: Stack, operator: Operator) -> None:
    """Lost responses, a stored 500, a decline, a refund: balanced. A charge by hand and a changed row: found."""
    before = charged(audit(operator))
    for fault in (Fault.DROP_AFTER, Fault.ERROR_500_AFTER, Fault.DROP_BEFORE):
        shop.stripe.add_fault(fault, path="/v1/payment_intents/*/confirm")
    paid = [str(shop.order().json()["order_id"]) for _ in range(4)]
    assert [shop.decided_status(order_id) for order_id in paid] == ["PAID"] * 4
    declined = shop.placed(DECLINED_CARD, "PAYMENT_DECLINED")
    refund = shop.refund(paid[0], amount=PRICE)
    assert refund.status_code == 202, refund.text
    assert eventually(lambda: [each["amount"] for each in shop.stripe.ledger().refunds], lambda made: PRICE in made)
    ours = {*paid, declined}
    balanced = eventually(lambda: audit(operator), lambda document: not differences_of(document, ours))
    assert differences_of(balanced, ours) == []
    assert charged(balanced) - before == 4 * AMOUNT

    client = stripe.StripeClient(STRIPE_API_KEY, base_addresses={"api": stack.stripe_api_base})
    client.v1.payment_intents.create(
        {
            "amount": AMOUNT,
            "currency": CURRENCY,
            "payment_method": "pm_card_visa",
            "confirm": True,
            "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
            "metadata": {"order_id": paid[1]},
        }
    )
    stack.aws.client("dynamodb").update_item(
        TableName=stack.charges_table,
        Key={"order_id": {"S": paid[2]}},
        UpdateExpression="SET amount_minor = :other",
        ExpressionAttributeValues={":other": {"N": str(AMOUNT - 1)}},
    )
    found = {each["order_id"]: each for each in differences_of(audit(operator), ours)}
    assert found.keys() == {paid[1], paid[2]}
    assert found[paid[1]]["why"].endswith("charged twice, or by hand?")
    assert found[paid[2]]["why"] == "the row has another amount or currency"
    assert found[paid[1]]["command"] == f".venv/bin/python -m ops explain {paid[1]}"
