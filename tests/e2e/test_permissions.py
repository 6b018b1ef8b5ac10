"""Each function of the deployed stack may do what it does, and nothing else."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from local.stack import Stack
from onecharge.runtime.dynamodb import shard_of
from stripe_standin.faults import Fault
from tests.support.deployed_shop import DECLINED_CARD, THREE_D_SECURE_CARD, DeployedShop, eventually
from tests.support.harness import PROJECT
from tests.support.permissions import requests_of, rights_lambda_uses, rights_of
from tests.support.stacks import own_stack

pytestmark = own_stack
_EVENTS_AGE_SECONDS = 900


def test_every_right_is_used_and_every_request_is_allowed(shop: DeployedShop, stack: Stack) -> None:
    """By the functions as they are deployed, on every path that needs a right of its own; or by Lambda itself.

    The emulator enforces the roles, so a right that is missing is a request that was refused.
    """
    # Before reconcile takes these events. From then on events are as old as those that it reads.
    events_of_a_lost_row_and_a_failed_refund(shop, stack)
    shop.stripe.advance_clock(-_EVENTS_AGE_SECONDS)
    provocations = [
        an_order_is_paid_with_another_card,
        messages_are_poison_or_wait,
        a_waiting_order_is_republished,
        a_lost_row_is_recovered,
        a_cancellation_waits_for_stripe,
        refunds_are_made_and_come_back,
    ]
    with ThreadPoolExecutor(4) as threads:
        for provoked in [threads.submit(provoke, shop, stack) for provoke in provocations]:
            provoked.result()
    expected, rights = set(rights_lambda_uses(stack)), set(rights_of(stack))
    assert expected <= rights, "Lambda could not do its part"

    def unused() -> list[str]:
        requests = list(requests_of(stack))
        return sorted(
            " ".join(right) for right in rights - expected if not any(right.allows(each) for each in requests)
        )

    assert eventually(unused, lambda left: not left) == []
    assert [each for each in requests_of(stack) if not each.is_allowed] == []


def test_no_right_is_for_everything(stack: Stack) -> None:
    """No action and no resource has a wildcard, but X-Ray, which has no resources, and the streams of a log group."""
    for right in rights_of(stack):
        assert "*" not in right.action
        if not right.action.startswith("xray:"):
            assert right.resource.count("*") <= right.resource.endswith(":*") <= right.action.startswith("logs:")


# ------------------------------------------------------------ what uses the rights


def invoke(stack: Stack, function: str) -> None:
    answer = stack.aws.client("lambda").invoke(FunctionName=function, Payload=b"{}")
    assert "FunctionError" not in answer, answer["Payload"].read()


def item(**attributes: str) -> dict[str, Any]:
    return {name: {"S": value} for name, value in attributes.items()}


def set_attributes(stack: Stack, table: str, key: dict[str, Any], **attributes: str) -> None:
    stack.aws.client("dynamodb").update_item(
        TableName=table,
        Key=key,
        UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in attributes),
        ExpressionAttributeNames={f"#{name}": name for name in attributes},
        ExpressionAttributeValues={f":{name}": {"S": value} for name, value in attributes.items()},
    )


def lose_row(stack: Stack, order_id: str) -> None:
    stack.aws.client("dynamodb").delete_item(TableName=stack.charges_table, Key=item(order_id=order_id))


def republish_what_waits(stack: Stack) -> None:
    time.sleep(1)  # A round begins at a whole second: not before this one.
    invoke(stack, stack.republish_function)


def an_hour_ago() -> str:
    """A republication is due at this age, whatever an earlier run has published."""
    return datetime.fromtimestamp(time.time() - 3600, UTC).isoformat()


def reconcile_events_of_the_last_hour(stack: Stack) -> None:
    checkpoint = {**item(name="reconcile"), "version": {"N": "1"}, "since": {"N": str(int(time.time()) - 3600)}}
    table = stack.aws.physical_id(stack.stack_name, "PaymentsStateTable")
    stack.aws.client("dynamodb").put_item(TableName=table, Item=checkpoint)
    invoke(stack, stack.reconcile_function)


def is_shown(shop: DeployedShop, order_id: str, status: str) -> None:
    """The order, or one of its refunds, comes to this status."""

    def statuses() -> set[str]:
        order = shop.get(order_id).json()
        return {str(order["status"]), *(each["status"] for each in order.get("refunds", ()))}

    assert status in eventually(statuses, lambda seen: status in seen)


def fail_refund(shop: DeployedShop, refund_id: str) -> None:
    """Its bank returns it."""
    for refund in shop.stripe.ledger().refunds:
        if refund["metadata"].get("refund_id") == refund_id:
            shop.stripe.fail_refund(refund["id"])


def events_of_a_lost_row_and_a_failed_refund(shop: DeployedShop, stack: Stack) -> None:
    """And of a customer at the bank."""
    waiting, lost = shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION"), shop.placed("pm_card_visa", "PAID")
    assert shop.client_secret(waiting)
    shop.stripe.authenticate(shop.intents(waiting)[0]["id"])
    lose_row(stack, lost)
    shop.stripe.deliver_webhooks()
    is_shown(shop, waiting, "PAID")
    refund_id = str(shop.refund(waiting, amount=500).json()["refund_id"])
    is_shown(shop, waiting, "SUCCEEDED")
    fail_refund(shop, refund_id)
    shop.stripe.deliver_webhooks()


def an_order_is_paid_with_another_card(shop: DeployedShop, stack: Stack) -> None:
    """And listed: the index only names orders."""
    order_id = shop.placed(DECLINED_CARD, "PAYMENT_DECLINED")
    assert shop.post(f"{order_id}/payments", payment_method="pm_card_visa").status_code == 202
    assert shop.decided_status(order_id) == "PAID"
    assert shop.http.get(f"{stack.api_url}/orders", timeout=90).json()["orders"]


def messages_are_poison_or_wait(shop: DeployedShop, stack: Stack) -> None:
    """For Stripe, or for an order that is not there. A damaged item can never be published."""
    sqs = stack.aws.client("sqs")
    for queue in (stack.payments_queue_url, stack.order_updates_queue_url, stack.refunds_queue_url):
        sqs.send_message(QueueUrl=queue, MessageBody="poison")
    shop.stripe.add_fault(Fault.UNAVAILABLE_503, times=3)
    assert shop.order().status_code == 202
    for queue, sample in (
        (stack.order_updates_queue_url, "update_order/payment_succeeded"),
        (stack.order_updates_queue_url, "update_order/refund_succeeded"),
        (stack.refunds_queue_url, "refund_charge/refund_requested"),
    ):
        [record] = json.loads((PROJECT / "events" / f"{sample}.json").read_text())["Records"]
        sqs.send_message(QueueUrl=queue, MessageBody=record["body"])
    damaged = item(order_id=f"ord_{uuid4().hex}", status="PENDING")
    stack.aws.client("dynamodb").put_item(TableName=stack.orders_table, Item=damaged)


def a_waiting_order_is_republished(shop: DeployedShop, stack: Stack) -> None:
    order_id = shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION")
    set_attributes(stack, stack.orders_table, item(order_id=order_id), waiting_since=an_hour_ago())
    republish_what_waits(stack)


def a_lost_row_is_recovered(shop: DeployedShop, stack: Stack) -> None:
    """By reconcile, which also finalizes what the customer has authenticated since."""
    lost, waiting = shop.placed("pm_card_visa", "PAID"), shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION")
    lose_row(stack, lost)
    shop.stripe.authenticate(shop.intents(waiting)[0]["id"])
    reconcile_events_of_the_last_hour(stack)
    is_shown(shop, waiting, "PAID")


def a_cancellation_waits_for_stripe(shop: DeployedShop, stack: Stack) -> None:
    """And is continued from its message."""
    order_id = shop.placed(DECLINED_CARD, "PAYMENT_DECLINED")
    path = f"/v1/payment_intents/{shop.intents(order_id)[0]['id']}"
    for method, of_intent in (("GET", path), ("POST", f"{path}/cancel")):
        shop.stripe.add_fault(Fault.UNAVAILABLE_503, times=6, method=method, path=of_intent)
    assert shop.post(f"{order_id}/cancel").status_code == 202


def refunds_are_made_and_come_back(shop: DeployedShop, stack: Stack) -> None:
    """One that waits is published again; one that fails later is told again, though its payment's row is lost."""
    order_id = shop.placed("pm_card_visa", "PAID")
    waiting, failed = [str(shop.refund(order_id, amount=500).json()["refund_id"]) for _ in range(2)]
    eventually(lambda: {each["status"] for each in shop.get(order_id).json()["refunds"]}, lambda s: s == {"SUCCEEDED"})
    key, table = (
        item(order_id=order_id, refund_id=waiting),
        stack.aws.physical_id(stack.stack_name, "OrderRefundsTable"),
    )
    pending = {"status": "PENDING", "waiting_shard": shard_of(order_id), "requested_at": an_hour_ago()}
    set_attributes(stack, table, key, **pending)
    republish_what_waits(stack)
    lose_row(stack, order_id)
    fail_refund(shop, failed)
    reconcile_events_of_the_last_hour(stack)
    is_shown(shop, order_id, "FAILED")
