"""On the deployed stack: a record that cannot be published, and rows that were lost, are fixed with the command."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from local.stack import Stack
from tests.support.deployed_shop import DECLINED_CARD, DeployedShop, eventually, orders_unpublished
from tests.support.ops_command import Operator
from tests.support.stacks import on_both, own_stack

pytestmark = own_stack


def ops(stack: Stack, folder: Path, *words: str) -> dict[str, Any]:
    """What `python -m ops --json` prints for this stack."""
    answer = Operator(stack, folder).run(*words)
    assert not answer.stderr
    return dict(answer.document)


def invoke(stack: Stack, function: str) -> None:
    answer = stack.aws.client("lambda").invoke(FunctionName=function, Payload=b"{}")
    assert "FunctionError" not in answer, answer["Payload"].read()


def failed(stack: Stack, folder: Path, order_id: str) -> list[dict[str, Any]]:
    listed = ops(stack, folder, "failed-records", "list")["failed_records"]
    return [each for each in listed if each["item"] == order_id]


@on_both
def test_a_record_that_cannot_be_published_is_in_s3_and_blocks_nothing(
    shop: DeployedShop, stack: Stack, tmp_path: Path
) -> None:
    """Whole; the order behind it is paid. Corrected, it is published by the command, charged once, and gone."""
    dynamodb = stack.aws.client("dynamodb")
    paid = str(shop.order().json()["order_id"])
    assert shop.decided_status(paid) == "PAID"
    item = dynamodb.get_item(TableName=stack.orders_table, Key={"order_id": {"S": paid}})["Item"]
    order_id = f"{paid[:-4]}beef"
    spoiled = {**item, "order_id": {"S": order_id}, "status": {"S": "PENDING"}, "amount_minor": {"S": "a lot"}}
    dynamodb.put_item(TableName=stack.orders_table, Item=spoiled)
    behind = str(shop.order().json()["order_id"])
    assert shop.decided_status(behind) == "PAID"
    [listed] = eventually(lambda: failed(stack, tmp_path, order_id), bool)
    assert listed["reason"].startswith("Unpublishable")
    # Corrected without a record of its own in the stream, as after a release that was rolled back.
    with orders_unpublished(stack):
        corrected = {**spoiled, "amount_minor": item["amount_minor"]}
        dynamodb.put_item(TableName=stack.orders_table, Item=corrected)
        time.sleep(3)
        assert shop.charges(order_id) == []
        ops(stack, tmp_path, "failed-records", "republish", listed["key"], "--yes")
        assert shop.decided_status(order_id) == "PAID"
    assert len(shop.charges(order_id)) == 1
    assert failed(stack, tmp_path, order_id) == []


def test_lost_rows_are_restored_and_nobody_is_charged_again(shop: DeployedShop, stack: Stack, tmp_path: Path) -> None:
    """As the runbook says: DynamoDB restores into new tables, the missing rows are copied, Stripe's events read again.

    An order that was lost in both tables is there again, PAID, also for its client's retry; a row that was written
    since is not touched.
    """
    dynamodb = stack.aws.client("dynamodb")
    key = str(uuid4())
    lost = str(shop.order(key).json()["order_id"])
    half_lost, went_on = shop.placed("pm_card_visa", "PAID"), shop.placed(DECLINED_CARD, "PAYMENT_DECLINED")
    assert shop.decided_status(lost) == "PAID"
    tables = {"PaymentsTable": stack.charges_table, "OrdersTable": stack.orders_table}
    restored = {logical_id: f"{name}-restored-{uuid4().hex[:8]}" for logical_id, name in tables.items()}
    for logical_id, name in tables.items():
        dynamodb.restore_table_to_point_in_time(
            SourceTableName=name, TargetTableName=restored[logical_id], UseLatestRestorableTime=True
        )
    assert shop.post(f"{went_on}/payments", payment_method="pm_card_visa").status_code == 202
    assert shop.decided_status(went_on) == "PAID"
    for name, order_id in ((stack.charges_table, lost), (stack.orders_table, lost), (stack.charges_table, half_lost)):
        dynamodb.delete_item(TableName=name, Key={"order_id": {"S": order_id}})
    assert shop.get(lost).status_code == 404
    for logical_id, missing in (("PaymentsTable", 2), ("OrdersTable", 1)):
        words = ("restore", "rows", "--table", logical_id, "--from", restored[logical_id])
        dry = ops(stack, tmp_path, *words)
        assert dry["rows"]["missing"] == missing
        assert went_on in dry["different"]
        assert ops(stack, tmp_path, *words, "--yes")["rows"]["copied"] == missing
        assert "missing" not in ops(stack, tmp_path, *words)["rows"]
    invoke(stack, stack.reconcile_function)
    since = datetime.fromtimestamp(time.time() - 7200, UTC).isoformat(timespec="seconds")
    ops(stack, tmp_path, "restore", "outcomes", "--since", since, "--yes")
    invoke(stack, stack.reconcile_function)
    invoke(stack, stack.republish_function)
    assert shop.order(key).json()["order_id"] == lost
    for order_id in (lost, half_lost, went_on):
        assert shop.get(order_id).json()["status"] == "PAID"
        assert len(shop.charges(order_id)) == 1
