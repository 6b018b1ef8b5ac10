"""On the deployed stack: what the streams lost, or were the only ones to carry, still comes to its end, once."""

import time
from datetime import UTC, datetime

from local.stack import Stack
from onecharge.runtime.dynamodb import shard_of
from tests.support.deployed_shop import AMOUNT, DeployedShop, eventually, orders_unpublished
from tests.support.stacks import on_both, own_stack

pytestmark = own_stack


def stays_pending_for_an_hour(shop: DeployedShop, stack: Stack, order_id: str) -> None:
    """The order is PENDING, and waits just so long that it is due, whatever an earlier run has published."""
    stack.aws.client("dynamodb").update_item(
        TableName=stack.orders_table,
        Key={"order_id": {"S": order_id}},
        UpdateExpression="SET #status = :pending, waiting_shard = :shard, waiting_since = :since REMOVE expires_at",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={
            ":pending": {"S": "PENDING"},
            ":shard": {"S": shard_of(order_id)},
            ":since": {"S": datetime.fromtimestamp(time.time() - 3600, UTC).isoformat()},
        },
    )
    time.sleep(5)
    assert shop.get(order_id).json()["status"] == "PENDING"


def republish(stack: Stack) -> None:
    answer = stack.aws.client("lambda").invoke(FunctionName=stack.republish_function, Payload=b"{}")
    assert "FunctionError" not in answer, answer["Payload"].read()


def lines(shop: DeployedShop, *parts: str) -> list[str]:
    """The lines of the functions' logs that hold all of these."""
    return [line for line in shop.log().splitlines() if all(part in line for part in parts)]


@on_both
def test_an_order_that_was_never_published_is_charged(shop: DeployedShop, stack: Stack) -> None:
    """It is found by its status, published, and charged; once, though the stream's record comes late in the end."""
    with orders_unpublished(stack):
        order_id = shop.order().json()["order_id"]
        stays_pending_for_an_hour(shop, stack, order_id)
        assert shop.charges(order_id) == []
        republish(stack)
        assert shop.decided_status(order_id) == "PAID"
    republish(stack)
    assert eventually(lambda: lines(shop, "duplicate ignored: the attempt has ended", order_id), bool)
    assert [charge.amount_minor for charge in shop.charges(order_id)] == [AMOUNT]


def test_an_outcome_that_was_never_published_moves_the_order(shop: DeployedShop, stack: Stack) -> None:
    """The order was charged an hour ago and does not know: it asks again, is answered again, and is charged no more."""
    order_id = shop.order().json()["order_id"]
    assert shop.decided_status(order_id) == "PAID"
    stack.aws.client("dynamodb").update_item(
        TableName=stack.charges_table,
        Key={"order_id": {"S": order_id}},
        UpdateExpression="SET finalized_at = finalized_at - :an_hour",
        ExpressionAttributeValues={":an_hour": {"N": "3600"}},
    )
    # That change of ours was published as well: it must be over before the order forgets.
    assert eventually(lambda: lines(shop, "order update ignored: stale or duplicate", order_id), bool)
    with orders_unpublished(stack):
        stays_pending_for_an_hour(shop, stack, order_id)
        republish(stack)
        assert shop.decided_status(order_id) == "PAID"
    assert len(shop.charges(order_id)) == 1
