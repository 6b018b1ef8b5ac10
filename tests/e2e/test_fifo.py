"""The template with Messaging=fifo, deployed. What holds for both kinds is marked `on_both` where it is tested."""

from local.observe import drain
from local.stack import Stack
from onecharge.orders.schema import StoredOrder
from tests.support.deployed_shop import DeployedShop, eventually
from tests.support.stacks import on_fifo

pytestmark = on_fifo


def test_duplicates_and_poison_in_one_group_make_one_charge(shop: DeployedShop, stack: Stack) -> None:
    """Under deduplication ids of their own, as a redrive after five minutes has them: FIFO stops none of these. Poison
    is in the DLQ at its first receive, with its reason, and what is behind it is handled."""
    drain(stack, stack.payments_dlq_url)
    order_id = shop.order().json()["order_id"]
    key = {"order_id": {"S": order_id}}
    answer = stack.aws.client("dynamodb").get_item(TableName=stack.orders_table, Key=key)
    event = StoredOrder.from_item(answer["Item"]).placed_event().model_dump_json(exclude_none=True)
    shop.deliver(*[event] * 5, '{"specversion": "1.0"}', *[event] * 5, group=order_id)
    assert shop.decided_status(order_id) == "PAID"
    shop.deliver(event, group="another")

    def ignored() -> int:
        lines = shop.log().splitlines()
        return sum("duplicate ignored: the attempt has ended" in line and order_id in line for line in lines)

    assert eventually(ignored, lambda count: count >= 11) >= 11
    assert len(shop.charges(order_id)) == 1
    [message] = eventually(lambda: drain(stack, stack.payments_dlq_url), bool)
    assert message["Body"] == '{"specversion": "1.0"}'
    assert message["MessageAttributes"]["reason"]["StringValue"] == "type: missing"
