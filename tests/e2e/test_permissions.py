"""Each function of the deployed stack may do what it does, and nothing else."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from local.stack import Stack
from onecharge.runtime.dynamodb import shard_of
from stripe_standin.faults import Fault
from tests.support.deployed_shop import DECLINED_CARD, THREE_D_SECURE_CARD, DeployedShop, eventually
from tests.support.harness import PROJECT
from tests.support.permissions import physical_id, requests_of, rights_lambda_uses, rights_of
from tests.support.stacks import own_stack

pytestmark = own_stack
_EVENTS_AGE_SECONDS = 900


def test_every_right_is_used_and_every_request_is_allowed(shop: DeployedShop, stack: Stack) -> None:
    """By the functions as they are deployed, on every path that needs a right of its own; or by Lambda itself.

    The emulator enforces the roles, so a right that is missing is a request that was refused.
    """
    # Before reconcile takes these events.
    events_arrive(shop, stack, shop.stripe.deliver_webhooks)
    # From now on events are as old as those that it reads.
    shop.stripe.advance_clock(-_EVENTS_AGE_SECONDS)
    provocations = [
        an_order_is_paid_with_another_card,
        poison_messages_arrive,
        an_outage_makes_messages_wait,
        a_waiting_order_is_republished,
        an_item_is_damaged,
        a_lost_row_is_recovered,
        a_cancellation_waits_for_stripe,
        a_customer_looks_for_the_client_secret,
        refunds_are_made_and_come_back,
    ]
    with ThreadPoolExecutor(4) as threads:
        for provoked in [threads.submit(provoke, shop, stack) for provoke in provocations]:
            provoked.result()
    expected = set(rights_lambda_uses(stack))
    rights = set(rights_of(stack))
    assert expected <= rights, "Lambda could not do its part"

    def unused() -> list[str]:
        requests = list(requests_of(stack))
        return sorted(
            " ".join(right) for right in rights - expected if not any(right.allows(each) for each in requests)
        )

    assert eventually(unused, lambda left: not left) == []
    assert [each for each in requests_of(stack) if not each.is_allowed] == []


def test_no_right_is_for_everything(stack: Stack) -> None:
    """No action and no resource has a wildcard, but X-Ray and a log group's streams."""
    for right in rights_of(stack):
        assert "*" not in right.action
        if right.action.startswith("xray:"):
            continue  # X-Ray has no resources to name.
        assert right.resource.count("*") <= right.resource.endswith(":*")
        assert right.resource.endswith(":*") <= right.action.startswith("logs:")


# ------------------------------------------------------------ what uses the rights


def invoke(stack: Stack, function: str) -> None:
    answer = stack.aws.client("lambda").invoke(FunctionName=function, Payload=b"{}")
    assert "FunctionError" not in answer, answer["Payload"].read()


def set_attributes(stack: Stack, table: str, key: dict[str, str], **attributes: str) -> None:
    stack.aws.client("dynamodb").update_item(
        TableName=table,
        Key={name: {"S": value} for name, value in key.items()},
        UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in attributes),
        ExpressionAttributeNames={f"#{name}": name for name in attributes},
        ExpressionAttributeValues={f":{name}": {"S": value} for name, value in attributes.items()},
    )


def delete(stack: Stack, table: str, **key: str) -> None:
    stack.aws.client("dynamodb").delete_item(TableName=table, Key={name: {"S": value} for name, value in key.items()})


def reconcile_events_of_the_last_hour(stack: Stack) -> None:
    stack.aws.client("dynamodb").put_item(
        TableName=physical_id(stack, "PaymentsStateTable"),
        Item={"name": {"S": "reconcile"}, "version": {"N": "1"}, "since": {"N": str(int(time.time()) - 3600)}},
    )
    invoke(stack, stack.reconcile_function)


def an_order_is_paid_with_another_card(shop: DeployedShop, stack: Stack) -> None:
    order_id = shop.placed(DECLINED_CARD, "PAYMENT_DECLINED")
    assert shop.post(f"{order_id}/payments", payment_method="pm_card_visa").status_code == 202
    assert shop.decided_status(order_id) == "PAID"
    listed = shop.http.get(f"{stack.api_url}/orders", timeout=90)
    assert listed.status_code == 200
    # The orders themselves, which the index only names.
    assert listed.json()["orders"]


def poison_messages_arrive(shop: DeployedShop, stack: Stack) -> None:
    queues = [
        (stack.payments_queue_url, stack.payments_dlq_url),
        (stack.order_updates_queue_url, stack.order_updates_dlq_url),
        (stack.refunds_queue_url, stack.refunds_dlq_url),
    ]
    sqs = stack.aws.client("sqs")
    for queue, _ in queues:
        sqs.send_message(QueueUrl=queue, MessageBody="poison")
    for _, dlq in queues:
        assert eventually(lambda dlq=dlq: sqs.receive_message(QueueUrl=dlq).get("Messages"), bool)  # type: ignore[misc]


def an_outage_makes_messages_wait(shop: DeployedShop, stack: Stack) -> None:
    """So does a message about an order that is not there."""
    shop.stripe.add_fault(Fault.UNAVAILABLE_503, times=3)
    assert shop.order().status_code == 202
    sqs = stack.aws.client("sqs")
    for queue, sample in (
        (stack.order_updates_queue_url, "update_order/payment_succeeded"),
        (stack.order_updates_queue_url, "update_order/refund_succeeded"),
        (stack.refunds_queue_url, "refund_charge/refund_requested"),
    ):
        [record] = json.loads((PROJECT / "events" / f"{sample}.json").read_text())["Records"]
        sqs.send_message(QueueUrl=queue, MessageBody=record["body"])


def an_hour_ago() -> str:
    """A republication is due at this age, whatever an earlier run has published."""
    return datetime.fromtimestamp(time.time() - 3600, UTC).isoformat()


def a_waiting_order_is_republished(shop: DeployedShop, stack: Stack) -> None:
    order_id = shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION")
    set_attributes(stack, stack.orders_table, {"order_id": order_id}, waiting_since=an_hour_ago())
    time.sleep(1)  # A round begins at a whole second: not before this one.
    invoke(stack, stack.republish_function)


def an_item_is_damaged(shop: DeployedShop, stack: Stack) -> None:
    """It can never be published."""
    damaged = {"order_id": {"S": f"ord_{uuid4().hex}"}, "status": {"S": "PENDING"}}
    stack.aws.client("dynamodb").put_item(TableName=stack.orders_table, Item=damaged)


def a_lost_row_is_recovered(shop: DeployedShop, stack: Stack) -> None:
    """By reconcile, which also finalizes what the customer has authenticated since."""
    lost, waiting = shop.placed("pm_card_visa", "PAID"), shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION")
    delete(stack, stack.charges_table, order_id=lost)
    shop.stripe.authenticate(intent_of(shop, waiting)["id"])
    reconcile_events_of_the_last_hour(stack)
    assert eventually(lambda: status_of(shop, waiting), lambda status: status == "PAID") == "PAID"


def status_of(shop: DeployedShop, order_id: str) -> str:
    return str(shop.get(order_id).json()["status"])


def intent_of(shop: DeployedShop, order_id: str) -> dict[str, Any]:
    intents = shop.stripe.ledger().payment_intents
    return next(dict(each) for each in intents if each["metadata"].get("order_id") == order_id)


def a_customer_looks_for_the_client_secret(shop: DeployedShop, stack: Stack) -> None:
    order_id = shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION")
    assert shop.client_secret(order_id)


def a_cancellation_waits_for_stripe(shop: DeployedShop, stack: Stack) -> None:
    """And is continued from its message."""
    order_id = shop.placed(DECLINED_CARD, "PAYMENT_DECLINED")
    path = f"/v1/payment_intents/{intent_of(shop, order_id)['id']}"
    for method, of_intent in (("GET", path), ("POST", f"{path}/cancel")):
        shop.stripe.add_fault(Fault.UNAVAILABLE_503, times=6, method=method, path=of_intent)
    assert shop.post(f"{order_id}/cancel").status_code == 202


def refunds_are_made_and_come_back(shop: DeployedShop, stack: Stack) -> None:
    """One that waits is published again; one that fails later is told again; one whose payment's row is lost meanwhile,
    too."""
    order_id = shop.placed("pm_card_visa", "PAID")
    waiting, failed = [str(shop.refund(order_id, amount=500).json()["refund_id"]) for _ in range(2)]
    assert eventually(lambda: statuses(shop, order_id), lambda seen: seen == {"SUCCEEDED"}) == {"SUCCEEDED"}
    table = physical_id(stack, "OrderRefundsTable")
    key = {"order_id": order_id, "refund_id": waiting}
    pending = {"status": "PENDING", "waiting_shard": shard_of(order_id)}
    set_attributes(stack, table, key, **pending, requested_at=an_hour_ago())
    time.sleep(1)  # A round begins at a whole second: not before this one.
    invoke(stack, stack.republish_function)
    delete(stack, stack.charges_table, order_id=order_id)
    fail_refunds(shop, failed)
    reconcile_events_of_the_last_hour(stack)
    assert "FAILED" in eventually(lambda: statuses(shop, order_id), lambda seen: "FAILED" in seen)


def fail_refunds(shop: DeployedShop, *refund_ids: str) -> None:
    """Their bank returns them."""
    for refund in shop.stripe.ledger().refunds:
        if refund["metadata"].get("refund_id") in refund_ids:
            shop.stripe.fail_refund(refund["id"])


def statuses(shop: DeployedShop, order_id: str) -> set[str]:
    return {each["status"] for each in shop.get(order_id).json()["refunds"]}


def events_arrive(shop: DeployedShop, stack: Stack, deliver: Callable[[], object]) -> None:
    """Of a customer at the bank, of a lost row, and of a refund that failed."""
    waiting, lost = shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION"), shop.placed("pm_card_visa", "PAID")
    shop.stripe.authenticate(intent_of(shop, waiting)["id"])
    delete(stack, stack.charges_table, order_id=lost)
    deliver()
    assert eventually(lambda: status_of(shop, waiting), lambda status: status == "PAID") == "PAID"
    refund_id = str(shop.refund(waiting, amount=500).json()["refund_id"])
    assert eventually(lambda: statuses(shop, waiting), lambda seen: seen == {"SUCCEEDED"}) == {"SUCCEEDED"}
    fail_refunds(shop, refund_id)
    deliver()
