"""On the deployed stack: a record that cannot be published is skipped, and rows that were lost are restored."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from local.stack import Stack
from onecharge.runtime.dynamodb import to_item
from tests.support.deployed_shop import DECLINED_CARD, DeployedShop, eventually, log_of
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


def logged(stack: Stack, since: float, order_id: str, message: str) -> list[dict[str, Any]]:
    """The log lines about the order that begin with this message."""
    texts = [event["message"] for event in log_of(stack, since)]
    lines = [json.loads(text) for text in texts if order_id in text and message in text]
    return [line for line in lines if str(line.get("message")).startswith(message)]


@on_both
def test_a_record_that_cannot_be_published_is_skipped_and_blocks_nothing(
    shop: DeployedShop, stack: Stack, tmp_path: Path
) -> None:
    """The alarm names table and order; the order behind it is paid. `publish` emits what is stored of that one again:
    its outcome, which changes nothing."""
    dynamodb, since = stack.aws.client("dynamodb"), time.time()
    order_id = f"ord_{uuid4().hex}"
    dynamodb.put_item(TableName=stack.orders_table, Item=to_item({"order_id": order_id, "status": "PENDING"}))
    behind = str(shop.order().json()["order_id"])
    assert shop.decided_status(behind) == "PAID"
    [skipped, *_] = eventually(lambda: logged(stack, since, order_id, "unpublishable, skipped"), bool)
    assert (skipped["table"], skipped["cause"]) == (stack.orders_table, "UnexpectedError")
    dynamodb.delete_item(TableName=stack.orders_table, Key=to_item({"order_id": order_id}))

    def outcomes() -> int:
        published = logged(stack, since, behind, "event published")
        return sum(each["event_type"] == "onecharge.payment.succeeded" for each in published)

    assert eventually(outcomes, bool) == 1
    ops(stack, tmp_path, "publish", behind, "--yes")
    assert eventually(outcomes, lambda number: number > 1) == 2
    assert (shop.decided_status(behind), len(shop.charges(behind))) == ("PAID", 1)


def test_lost_rows_are_restored_and_nobody_is_charged_again(shop: DeployedShop, stack: Stack, tmp_path: Path) -> None:
    """As the runbook says: DynamoDB restores into new tables, the missing rows are copied, and follow Stripe.

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
        words = ("restore", "copy", "--table", logical_id, "--from", restored[logical_id])
        dry = ops(stack, tmp_path, *words)
        assert dry["rows"]["missing"] == missing
        assert went_on in dry["different"]
        assert ops(stack, tmp_path, *words, "--yes")["rows"]["copied"] == missing
        assert "missing" not in ops(stack, tmp_path, *words)["rows"]
    invoke(stack, stack.reconcile_function)
    since = datetime.fromtimestamp(time.time() - 7200, UTC).isoformat(timespec="seconds")
    ops(stack, tmp_path, "restore", "rows", "--from", since, "--yes")
    invoke(stack, stack.reconcile_function)
    invoke(stack, stack.republish_function)
    assert shop.order(key).json()["order_id"] == lost
    for order_id in (lost, half_lost, went_on):
        assert shop.get(order_id).json()["status"] == "PAID"
        assert len(shop.charges(order_id)) == 1
