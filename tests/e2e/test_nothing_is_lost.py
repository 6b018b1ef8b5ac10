"""On the deployed stack: an order that its stream never carried is charged, and rows that were lost are restored."""

import time
from datetime import UTC, datetime
from uuid import uuid4

from local.stack import Stack
from onecharge.runtime.dynamodb import shard_of
from tests.support.deployed_shop import AMOUNT, DECLINED_CARD, DeployedShop, eventually, orders_unpublished
from tests.support.ops_command import Operator
from tests.support.stacks import on_both, own_stack

pytestmark = own_stack


def invoke(stack: Stack, function: str) -> None:
    answer = stack.aws.client("lambda").invoke(FunctionName=function, Payload=b"{}")
    assert "FunctionError" not in answer, answer["Payload"].read()


@on_both
def test_an_order_that_was_never_published_is_charged(shop: DeployedShop, stack: Stack) -> None:
    """It is found by its status, published, and charged; once, though the stream's record comes late in the end."""
    with orders_unpublished(stack):
        order_id = shop.order().json()["order_id"]
        stack.aws.client("dynamodb").update_item(  # An hour ago: it is due, whatever an earlier run has published.
            TableName=stack.orders_table,
            Key={"order_id": {"S": order_id}},
            UpdateExpression="SET waiting_shard = :shard, waiting_since = :since",
            ExpressionAttributeValues={
                ":shard": {"S": shard_of(order_id)},
                ":since": {"S": datetime.fromtimestamp(time.time() - 3600, UTC).isoformat()},
            },
        )
        time.sleep(5)
        assert shop.get(order_id).json()["status"] == "PENDING"
        assert shop.charges(order_id) == []
        invoke(stack, stack.republish_function)
        assert shop.decided_status(order_id) == "PAID"

    def ignored() -> bool:
        lines = shop.log().splitlines()
        return any("duplicate ignored: the attempt has ended" in line and order_id in line for line in lines)

    assert eventually(ignored, bool)
    assert [charge.amount_minor for charge in shop.charges(order_id)] == [AMOUNT]


def test_lost_rows_are_restored_and_nobody_is_charged_again(
    shop: DeployedShop, stack: Stack, operator: Operator
) -> None:
    """As the runbook says: DynamoDB restores into new tables, the missing rows are copied, and follow Stripe.

    An order that was lost in both tables is there again, PAID, also for its client's retry; a row that was written
    since is not touched.
    """
    dynamodb, key = stack.aws.client("dynamodb"), str(uuid4())
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
        dry = operator.run(*words).document
        assert (dry["missing"], went_on in dry["different_left_as_it_is"]) == (missing, True)
        assert operator.run(*words, "--yes").document["copied"] == missing
        assert "missing" not in operator.run(*words).document
    invoke(stack, stack.reconcile_function)
    since = datetime.fromtimestamp(time.time() - 7200, UTC).isoformat(timespec="seconds")
    operator.run("restore", "rows", "--from", since, "--yes")
    invoke(stack, stack.reconcile_function)
    invoke(stack, stack.republish_function)
    assert shop.order(key).json()["order_id"] == lost
    for order_id in (lost, half_lost, went_on):
        assert (shop.get(order_id).json()["status"], len(shop.charges(order_id))) == ("PAID", 1)
