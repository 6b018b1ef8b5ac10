"""On the deployed stack: orders get into trouble for real, and the commands of `python -m ops` lead out of it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from local.stack import Stack
from onecharge.orders.schema import StoredOrder
from onecharge.runtime.dynamodb import from_item, to_item
from ops.command_line import main
from stripe_standin.faults import Fault
from tests.support.deployed_shop import AMOUNT, PRICE, DeployedShop, eventually, forget_dead_letters
from tests.support.stacks import on_both, own_stack

pytestmark = own_stack
type Ops = Callable[..., tuple[int, Any]]


@pytest.fixture
def ops(stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ops:
    """Runs a command, through the stack.json that `make local` writes: its exit status, and its JSON document."""
    stack_json = tmp_path / "stack.json"
    stack_json.write_text(stack.as_json())

    def run(*words: str) -> tuple[int, Any]:
        status = main(["--stack", str(stack_json), "--json", *words])
        return status, json.loads(capsys.readouterr().out)

    return run


def first_finding(ops: Ops, order_id: str) -> str:
    return str(ops("explain", order_id)[1]["findings"][0]["says"])


def order_of(stack: Stack, order_id: str) -> dict[str, Any]:
    answer = stack.aws.client("dynamodb").get_item(TableName=stack.orders_table, Key=to_item({"order_id": order_id}))
    return from_item(answer["Item"])


def test_a_paid_order_is_explained_and_agrees(shop: DeployedShop, stack: Stack, ops: Ops) -> None:
    """Lost responses, a stored 500, a refund: the log and Stripe's objects tell it, and the audit finds no difference
    until a row is changed."""
    for fault in (Fault.DROP_AFTER, Fault.ERROR_500_AFTER):
        shop.stripe.add_fault(fault, path="/v1/payment_intents/*/confirm")
    order_id = shop.placed("pm_card_visa", "PAID")
    assert shop.refund(order_id, amount=PRICE).status_code == 202
    assert eventually(
        lambda: [each["status"] for each in shop.get(order_id).json()["refunds"]], lambda found: found == ["SUCCEEDED"]
    )
    assert eventually(lambda: first_finding(ops, order_id), lambda says: says.startswith("the order is PAID"))
    status, explained = ops("explain", order_id)
    happened = " ".join(each["what"] for each in explained["what_happened"])
    assert (status, "_secret_" in json.dumps(explained)) == (0, False)
    for word in ("order placed", "payment finalized", "was created", "CHARGED", "refund requested"):
        assert word in happened

    def differences() -> list[str]:
        days = [f"{datetime.now(UTC) + timedelta(days=offset):%Y-%m-%d}" for offset in (-1, 1)]
        found = ops("audit", *days)[1]["differences"]
        return [each["why"] for each in found if each["order_id"] == order_id]

    assert eventually(differences, lambda found: found == []) == []
    stack.aws.client("dynamodb").update_item(
        TableName=stack.charges_table,
        Key=to_item({"order_id": order_id}),
        UpdateExpression="SET amount_minor = :other",
        ExpressionAttributeValues=to_item({":other": AMOUNT - 1}),
    )
    assert any("are not the row's" in why for why in differences())


@on_both
def test_a_dead_letter_is_named_and_redriven(shop: DeployedShop, stack: Stack, ops: Ops) -> None:
    """Its row was lost, and its order waits: the redrive restores both, and it is charged once."""
    forget_dead_letters(stack)
    order_id = shop.placed("pm_card_visa", "PAID")
    dynamodb, key = stack.aws.client("dynamodb"), to_item({"order_id": order_id})
    dynamodb.delete_item(TableName=stack.charges_table, Key=key)
    # No stream publishes this status: only the redriven message asks for the payment.
    dynamodb.put_item(
        TableName=stack.orders_table, Item=to_item(order_of(stack, order_id) | {"status": "REQUIRES_ACTION"})
    )
    url, body = stack.payments_dlq_url, StoredOrder.model_validate(order_of(stack, order_id)).placed_event()
    place = {"MessageGroupId": order_id, "MessageDeduplicationId": order_id} if url.endswith(".fifo") else {}
    stack.aws.client("sqs").send_message(QueueUrl=url, MessageBody=body.model_dump_json(exclude_none=True), **place)
    assert [each["order_id"] for each in ops("dlq", "list")[1]["messages"]] == [order_id]
    redriven = ops("dlq", "redrive", "--yes")[1]["messages"]
    assert [each["outcome"] for each in redriven] == ["redriven"]
    status = eventually(lambda: str(shop.get(order_id).json()["status"]), lambda status: status == "PAID")
    assert (status, len(shop.charges(order_id))) == ("PAID", 1)
    shop.deliver(json.dumps({"subject": order_id, "type": "onecharge.order.placed", "data": {}}))
    eventually(lambda: ops("dlq", "list")[1]["messages"], lambda found: len(found) == 1)
    [poison] = ops("dlq", "redrive", "--yes")[1]["messages"]
    assert (poison["order_id"], poison["outcome"].partition(":")[0]) == (order_id, "left")
